"""Equal layers get one kernel with a launch for each, and results that were read give up room."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from builtin_support import change, reference, verified
from hypothesis import given
from hypothesis import strategies as st

from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.program.values import Buffer, Dim
from kernelblaster.tools.first_kernel.stages.emission import _length
from kernelblaster.tools.first_kernel.stages.sharing import StageLaunch, places_of
from kernelblaster.tools.first_kernel.writer import InitialKernel, write_initial_cuda

BLOCKS = """\
class Block(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(C, D) for _ in range(3)])
        self.head = nn.Linear(C, E)

    def forward(self, x):
        first = x = self.blocks[0](x)
        for block in self.blocks[1:]:
            x = block(x)
        return self.head(x + first)


def get_inputs():
    return [torch.randn(R, C)]
"""
UNEQUAL = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(C, D)
        self.second = nn.Linear(D, C)
        self.third = nn.Linear(C, D, bias=False)

    def forward(self, x):
        return torch.tanh(self.third(torch.tanh(self.second(torch.tanh(self.first(x))))))


def get_inputs():
    return [torch.randn(R, C)]
"""


async def first_kernel(folder: Path, body: str, constants: str) -> tuple[InitialKernel, object]:
    made = await load_task(reference(folder, "layers", body, constants))
    written = write_initial_cuda(made)
    assert isinstance(written, InitialKernel), written
    return written, made


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return SimulatedDevice("H100")


@pytest.mark.parametrize("constants", ["R, C, D, E = 40, 24, 48, 8", "R, C, D, E = 24, 24, 24, 24"])
async def test_equal_layers_are_one_kernel(
    device: SimulatedDevice, tmp_path: Path, constants: str
) -> None:
    written, made = await first_kernel(tmp_path, BLOCKS, constants)
    # Norm, up, down, the last down with what is added to it, head: also where all sizes are one.
    assert [note.partition(", launched ")[2] for note in written.notes] == [
        "3 times", "3 times", "2 times", "", "",
    ]  # fmt: skip
    assert written.source.count("__global__") == 5 and written.source.count("<<<") == 10
    # Of nine results the first block's is read to the end, and three more live at a time.
    assert len(re.findall(r"constexpr long long SCRATCH\d+_FLOATS", written.source)) == 4
    assert (await verified(device, made, written.source)).outcome is Outcome.PASSED


async def test_what_differs_in_more_than_names_stays_apart(
    device: SimulatedDevice, tmp_path: Path
) -> None:
    written, made = await first_kernel(tmp_path, UNEQUAL, "R, C, D = 16, 24, 40")
    # Other sizes; no bias.
    assert written.source.count("__global__") == 3
    assert (await verified(device, made, written.source)).outcome is Outcome.PASSED


async def test_rewrites_of_kernels_with_several_launches_are_right(
    device: SimulatedDevice, tmp_path: Path
) -> None:
    written, made = await first_kernel(tmp_path, BLOCKS, "R, C, D, E = 64, 64, 128, 32")
    wanted = ("register_tiling", "block_row_reduction", "tune_block_size", "fast_math")
    changed = [change(written.source, made, technique) for technique in wanted]
    found = await asyncio.gather(*(verified(device, made, source) for source in changed))
    assert [result.reason for result in found if result.outcome is not Outcome.PASSED] == []


async def test_what_names_have_in_common_may_be_a_word_of_c(tmp_path: Path) -> None:
    body = UNEQUAL.replace("self.first", "self.register_1").replace("self.third", "self.register_2")
    body = body.replace(", bias=False", "")
    written, _ = await first_kernel(tmp_path, body, "R, C, D = 16, 24, 24")
    assert ", launched 3 times" in written.notes[0]
    assert not re.search(r"float\* (register|operator)\b", written.source)


def test_lengths_of_names_full_of_digits_are_told_at_once() -> None:
    assert _length("a" + "1" * 4000 + "x") == 4002
    assert _length("mean_2_3 * weight_0_bias12") == len("mean * weight_bias")


shapes = st.sampled_from([4, 8])
programs = st.lists(st.tuples(shapes, st.sets(st.integers(0, 9), max_size=3)), max_size=10)


@given(programs)
def test_no_result_is_overwritten_before_its_last_reader(
    program: list[tuple[int, set[int]]]
) -> None:
    """A program is a launch a result, which reads some of the results before it."""
    scratch, launches = [], []
    for number, (size, read) in enumerate(program):
        scratch.append(Buffer(f"scratch{number}", "float32", (Dim(str(size), size, size),)))
        before = [f"scratch{each}" for each in sorted(read) if each < number]
        launches.append(StageLaunch(0, (f"scratch{number}", *before)))
    places = places_of(scratch, launches)
    held: dict[str, str] = {}
    for launch in launches:
        written, *read = launch.arguments
        assert all(held[places[name]] == name for name in read)
        assert places[written] not in {places[name] for name in read}
        held[places[written]] = written
    shape = {buffer.name: buffer.dims for buffer in scratch}
    assert all(shape[name] == shape[owner] for name, owner in places.items())

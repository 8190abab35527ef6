"""Scatters: each of many values goes to its place by an atomic, each place looks for few."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from builtin_support import reference, verified, written_and_verified

from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.writer import InitialKernel, write_initial_cuda

FLOATS = """\
class Model(nn.Module):
    def forward(self, x, exact, places, deep, turned):
        wide = places[:, None].expand(-1, 3)
        rows, one = x[:, :3].contiguous(), x[:, 0].contiguous()
        base, doubles = x[:70].contiguous(), exact[:70].contiguous()
        return (x.new_zeros(70, 8).index_add(0, places, x, alpha=0.5),
                x.new_zeros(70).scatter_add(0, places, one),
                x.new_ones(2, 70, 3).index_add(1, places, deep),
                x.new_zeros(4, 70).scatter_add(1, turned, x.t()[:4, :4500].contiguous()),
                base.half().index_add(0, places, x.half() * 0.01),
                doubles.scatter_add(0, wide, exact),
                base.scatter_reduce(0, wide, rows, "amax"),
                base.scatter_reduce(0, wide, rows, "amin", include_self=False),
                base.scatter_reduce(0, wide, rows, "mean"),
                base.scatter_reduce(0, wide, (rows * 0.01).exp(), "prod"),
                base.bfloat16().scatter_reduce(0, wide, rows.bfloat16(), "amax"),
                doubles.scatter_reduce(0, wide, exact, "amin"),
                base.index_reduce(0, places, x, "mean", include_self=False),
                base.index_put((places - 35,), x, accumulate=True),
                base.bfloat16().index_put((places, places % 8), one.bfloat16() * 0.01,
                                          accumulate=True))


def get_inputs():
    return [torch.randn(MANY, 8), torch.randn(MANY, 3, dtype=torch.float64),
            torch.randint(0, 70, (MANY,)), torch.randn(2, MANY, 3),
            torch.randint(0, 70, (4, 4500))]
"""
WHOLE = """\
class Model(nn.Module):
    def forward(self, x, small, places, once):
        wide = places[:, None].expand(-1, 3)
        base, narrow, short = x[:70].contiguous(), small[:70].contiguous(), small.to(torch.int16)
        return (base.index_add(0, places, x, alpha=3),
                base.scatter_reduce(0, wide, x, "amax", include_self=False),
                base.scatter_reduce(0, wide, x, "prod"), base.scatter_reduce(0, wide, x, "mean"),
                base.scatter_reduce(0, wide[:40], x, "mean", include_self=False),
                base.index_add(0, torch.tensor(3), x[:1]),
                narrow.scatter_add(0, wide, small), narrow.scatter_reduce(0, wide, small, "amin"),
                short[:70].scatter_add(0, wide, short),
                base.index_put((places - 70,), x, accumulate=True),
                torch.zeros(70, dtype=torch.int64, device=x.device).scatter_add_(
                    0, places, torch.ones_like(places)),
                # Each place is named once, and not all are.
                x.new_zeros(MANY + 9, 3).index_copy(0, once, x),
                small.new_zeros(MANY + 9, 3).scatter(0, once[:, None].expand(-1, 2), small),
                x.new_zeros(MANY + 9).scatter(0, once, 7))


def get_inputs():
    return [torch.randint(-9, 9, (MANY, 3)), torch.randint(-9, 9, (MANY, 3), dtype=torch.int32),
            torch.randint(0, 70, (MANY,)), torch.randperm(MANY + 9)[:MANY]]
"""


@pytest.fixture(scope="module")
def device() -> Iterator[SimulatedDevice]:
    made = SimulatedDevice("H100")
    yield made
    made.close()


@pytest.mark.parametrize(("name", "body"), [("floats", FLOATS), ("whole", WHOLE)])
async def test_what_goes_by_atomics_is_what_pytorch_has(
    device: SimulatedDevice, tmp_path: Path, name: str, body: str
) -> None:
    made = await load_task(reference(tmp_path, name, body, "MANY = 5000"))
    written = write_initial_cuda(made)
    assert isinstance(written, InitialKernel), written
    assert "atomic" in written.source
    result = await verified(device, made, written.source)
    assert result.outcome is Outcome.PASSED, result.reason


async def test_what_is_far_from_few_looks_through_few_indices_alone(tmp_path: Path) -> None:
    body = """\
class Model(nn.Module):
    def forward(self, x, places):
        return x.index_add(0, places, x[:4000]), x.index_add(0, places[:40], x[:40])


def get_inputs():
    return [torch.randn(5000, 8), torch.randint(0, 5000, (4000,))]
"""
    made = await load_task(reference(tmp_path, "few", body, ""))
    written = write_initial_cuda(made)
    assert isinstance(written, InitialKernel), written
    assert written.source.count("atomicAdd") == 1, "5000 x 8 results look 4000 times, and 40 times"
    await written_and_verified(made)

"""A confirmation's cases are drawn from a secret: answers known beforehand are of no use there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from kernelblaster.harness.devices.gates import SECRET, Gates
from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task import full_case
from kernelblaster.harness.task.cases import prepare_cases_now, read_cases, secret_cases
from kernelblaster.harness.task.full_case import FullCase, prepare_full_case_now, secret_full_case
from kernelblaster.harness.task.loading import load_task

TASK = """
import torch
import torch.nn as nn

ROWS = 320
COLUMNS = 48


class Model(nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]
"""
LAUNCH = """
extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    sums<<<(DIM_ROWS + 63) / 64, 64, 0, stream>>>(x, out0);
}
"""
HONEST = (
    """#include "task.cuh"
__global__ void sums(const float* x, float* y) {
    int row = blockIdx.x * 64 + threadIdx.x;
    if (row >= DIM_ROWS) return;
    float sum = 0.0f;
    for (int i = 0; i < DIM_COLUMNS; i++) sum += x[row * DIM_COLUMNS + i];
    y[row] = sum;
}
"""
    + LAUNCH
)


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return SimulatedDevice("H200")


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("tasks") / "sums.py"
    path.write_text(TASK)
    return asyncio.run(load_task(path))


def table_of(task: Task) -> str:
    """Return a kernel that holds the answer of every case that can be known, by its first input."""
    folder = prepare_cases_now(task)
    full = prepare_full_case_now(task)
    assert isinstance(full, FullCase)
    known = [(folder / case.directory, folder / case.directory) for case in read_cases(folder)]
    known.append((Path(full.inputs), Path(full.answers)))
    tables, choices = [], []
    for number, (inputs, answers) in enumerate(known):
        first = np.fromfile(inputs / "x.bin", "<u4")[0]
        values = ", ".join(f"{v}u" for v in np.fromfile(answers / "out0.bin", "<u4"))
        tables.append(f"__device__ const unsigned t{number}[] = {{{values}}};")
        choices.append(f"if (key == {first}u) value = t{number}[row];")
    kernel = (
        "__global__ void sums(const float* x, float* y) {\n"
        "    int row = blockIdx.x * 64 + threadIdx.x;\n    if (row >= DIM_ROWS) return;\n"
        "    unsigned key = __float_as_uint(x[0]), value = 0;\n    "
        + "\n    ".join(choices) + "\n    y[row] = __uint_as_float(value);\n}\n"
    )  # fmt: skip
    return '#include "task.cuh"\n' + "\n".join(tables) + "\n" + kernel + LAUNCH


async def test_a_table_of_known_answers_is_refused_by_a_confirmation(
    device: SimulatedDevice, task: Task
) -> None:
    gates, source = Gates(device), await asyncio.to_thread(table_of, task)
    first = await gates.run(task, source)
    assert first.last.outcome is Outcome.PASSED, first.last.reason
    again = await gates.confirm(task, source)
    assert again.last.outcome is Outcome.WRONG_ANSWER and again.measured is None
    assert "case secret-" in again.last.reason
    # The result tells the number: who gives it sees the same, to the letter.
    secret = int(again.facts[SECRET])
    repeated = await gates.confirm(task, source, secret)
    assert repeated.last.reason == again.last.reason
    other = await gates.confirm(task, source)
    assert other.facts[SECRET] != secret


async def test_an_honest_kernel_is_confirmed_and_the_same_number_says_the_same(
    device: SimulatedDevice, task: Task
) -> None:
    gates = Gates(device)
    again = await gates.confirm(task, HONEST)
    assert again.last.outcome is Outcome.PASSED, again.last.reason
    assert again.facts["full_size_checked"] == 320 and "full_size_not_secret" not in again.facts
    repeated = await gates.confirm(task, HONEST, int(again.facts[SECRET]))
    assert repeated.facts == again.facts and repeated.timing == again.timing


async def test_where_a_case_of_its_own_takes_too_long_the_result_says_so(
    device: SimulatedDevice, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_case, "FRESH_SECONDS", 0.0)
    again = await Gates(device).confirm(task, HONEST)
    assert again.last.outcome is Outcome.PASSED
    assert "PyTorch takes" in str(again.facts["full_size_not_secret"])


def test_secret_cases_are_drawn_from_the_number_and_leave_nothing(task: Task) -> None:
    def inputs(secret: int) -> list[bytes]:
        with secret_cases(task, secret) as folder:
            found = [(folder / c.directory / "x.bin").read_bytes() for c in read_cases(folder)]
        assert not folder.exists()
        return found

    one, again, other = inputs(7), inputs(7), inputs(8)
    assert one == again
    folder = prepare_cases_now(task)
    public = [(folder / case.directory / "x.bin").read_bytes() for case in read_cases(folder)]
    # A tensor of one value has few to choose from.
    same = [a == b or a == c for a, b, c in zip(one, other, public, strict=True)]
    assert sum(same) <= 1
    with secret_full_case(task, 7) as full:
        assert isinstance(full, FullCase) and full.secret == 7
        usual = prepare_full_case_now(task)
        assert isinstance(usual, FullCase)
        known = Path(usual.inputs, "x.bin").read_bytes()
        assert Path(full.inputs, "x.bin").read_bytes() != known
    assert not Path(full.inputs).exists()

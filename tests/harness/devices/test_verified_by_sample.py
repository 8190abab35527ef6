"""What nothing makes smaller is judged by some of its blocks; no kernel gains by knowing that."""

from __future__ import annotations

import asyncio
import re

import pytest
from often_or_seldom import every

from kernelblaster.harness.devices.simulated import device as simulated
from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.judge.full_size_findings import Checked, verified_by_sample
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.loading import load_task

TASK = """
import torch
import torch.nn as nn

ROWS = 2048
COLUMNS = 256


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]
"""


def kernel(body: str, before: str = "", top: str = "") -> str:
    """Return a kernel of a block a row, whose workspace is one number."""
    return f"""#include "task.cuh"
{top}
__global__ void twice(const float* x, float* y, volatile int* count) {{
    int i = blockIdx.x * DIM_COLUMNS + threadIdx.x;
    float right = x[i] < 0.0f ? 0.0f : 2.0f * x[i];
    {body}
}}
extern "C" size_t workspace_bytes() {{ return 256; }}
extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {{
    {before}
    twice<<<DIM_ROWS, DIM_COLUMNS, 0, stream>>>(x, out0, (volatile int*)workspace);
}}
"""


HONEST = kernel("y[i] = right;")
CLEARED = "cudaMemsetAsync(workspace, 0, 256, stream);"
FEW = "if (threadIdx.x == 0) seen = *count; __syncthreads(); y[i] = seen < 1500 ? right : 0.0f;"
NOT_COMPARED = "does not tell right from wrong|take turns|all blocks together|elements .* differ"
"""Where blocks may know of each other all are run, if that is little work: then it shows."""
CHEATS = {
    "every other row": (kernel("y[i] = blockIdx.x & 1 ? right : 0.0f;"), "elements .* differ"),
    "a counter that blocks draw from": (
        kernel("__shared__ int seen; if (threadIdx.x == 0) seen = atomicAdd((int*)count, 1);"
               "__syncthreads(); y[i] = seen < 1500 ? right : 0.0f;", CLEARED), NOT_COMPARED,
    ),
    "a counter that they add to and then read": (
        kernel(f"__shared__ int seen; if (threadIdx.x == 0) atomicAdd((int*)count, 1); {FEW}",
               CLEARED), NOT_COMPARED,
    ),
    "a counter without atomics": (
        kernel(f"__shared__ int seen; {FEW} if (threadIdx.x == 0) *count = seen + 1;", CLEARED),
        NOT_COMPARED,
    ),
    "a counter among the variables": (
        kernel("__shared__ int seen; if (threadIdx.x == 0) { seen = own; own = seen + 1; }"
               "__syncthreads(); y[i] = seen < 1500 ? right : 0.0f;",
               top="__device__ volatile int own;"), NOT_COMPARED,
    ),
    "a launch that counts, and one that asks": (
        kernel(f"__shared__ int seen; {FEW}",
               CLEARED + "note<<<DIM_ROWS, 1, 0, stream>>>((int*)workspace);",
               "__global__ void note(int* count) { for (int i = 0; i < 400; i++) "
               "if (count[1] == 7) count[2] = i; atomicAdd(count, 1); }"), NOT_COMPARED,
    ),
    "a look at what a neighbour left": (
        kernel("int other = (i + DIM_COLUMNS * 977) % (DIM_ROWS * DIM_COLUMNS);"
               "unsigned left = ((volatile unsigned*)y)[other];"
               "y[i] = left == 0xFFFFFFFFu || left == 0xFEFEFEFEu ? right : 0.0f;"), NOT_COMPARED,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return SimulatedDevice("H200")


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("tasks") / "twice.py"
    path.write_text(TASK)
    return asyncio.run(load_task(path))


@pytest.fixture(autouse=True)
def a_few_blocks_are_affordable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "MOST_WHOLE_WORK", 0)
    monkeypatch.setattr(simulated, "SAMPLE_INSTRUCTIONS", 60_000)


async def test_a_pass_says_of_what_share_and_a_confirmation_takes_another_sample(
    device: SimulatedDevice, task: Task
) -> None:
    drawn = []
    for sample in (0, 5, 6):
        found = await device.verify(task, HONEST, sample)
        assert found.outcome is Outcome.PASSED, found.reason
        told = str(found.facts["verified_by_sample"])
        share = re.search(r"([\d.]+) % of the blocks run, in two orders", told)
        assert share and 2 < float(share[1]) < 60, told
        drawn.append(told)
    assert "at full dimensions" in drawn[0]


@pytest.mark.parametrize("name", every(8, CHEATS))
async def test_what_knows_that_few_blocks_run_does_not_pass(
    device: SimulatedDevice, task: Task, name: str
) -> None:
    source, words = CHEATS[name]
    found = await device.verify(task, source)
    assert found.outcome is not Outcome.PASSED, found.facts
    assert re.search(words, found.reason), found.reason


def test_what_was_not_compared_is_no_pass() -> None:
    passed = verified_by_sample(Checked(10, share=0.1, blocks=0.2, orders=2))
    assert passed.outcome is Outcome.PASSED
    assert str(passed.facts["verified_by_sample"]).startswith("at full dimensions, 10 % of the")
    for unsure in (Checked(0), Checked(10, "3 hang on others"), Checked(10, uncompared=("out1",))):
        assert verified_by_sample(unsure).outcome is Outcome.UNSUPPORTED

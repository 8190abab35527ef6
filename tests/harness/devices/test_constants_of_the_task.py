"""Kernels that rely on constants of the task pass, and the result names them; all else varies."""

from __future__ import annotations

import asyncio

import pytest
from often_or_seldom import every
from small_references import MODEL

from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.contract import header
from kernelblaster.harness.task.loading import load_task

HEAD = "import torch\nimport torch.nn as nn\n\nROWS = 96\nCOLUMNS = 80\n\n"
X = "torch.randn(ROWS, COLUMNS)"
TASKS = {
    "norm": ("self.norm = nn.BatchNorm1d(COLUMNS); self.eval()", "x", "self.norm(x)", X),
    "causal": (
        'self.register_buffer("mask", torch.tril(torch.ones(ROWS, COLUMNS)).bool())',
        "x", "x.masked_fill(~self.mask, 0.0)", X,
    ),
    "drawn": ('self.register_buffer("shift", torch.randn(COLUMNS))', "x", "x + self.shift", X),
    "table": (
        "self.rows = nn.Embedding(1000, COLUMNS)", "index", "self.rows(index)",
        "torch.randint(0, 1000, (ROWS,))",
    ),
    "largest": ("pass", "x", "x.argmax(dim=1)", X),
    "flags": (
        "pass", "x, keep", "torch.where(keep, x, -x)", f"{X}, torch.rand(ROWS, COLUMNS) < 0.5",
    ),
}  # fmt: skip
NORM = "(x[i] - {}) * rsqrtf({} + 1e-5f) * norm_weight[c] + norm_bias[c]"
KERNELS = {
    "norm read": ("norm", NORM.format("norm_running_mean[c]", "norm_running_var[c]"), ""),
    "norm folded": ("norm", NORM.format("0.0f", "1.0f"), "norm_running_mean, norm_running_var"),
    "mean folded": ("norm", NORM.format("0.0f", "norm_running_var[c]"), "norm_running_mean"),
    "mask read": ("causal", "mask[i] ? x[i] : 0.0f", ""),
    "mask computed": ("causal", "c <= r ? x[i] : 0.0f", "mask"),
    "shift read": ("drawn", "x[i] + shift[c]", ""),
    "row looked up": ("table", "rows_weight[index[r] * DIM_COLUMNS + c]", ""),
    "flag read": ("flags", "keep[i] ? x[i] : -x[i]", ""),
}
"""Of each element: r, c and i are its row, column and place."""
WRONG = {
    "weight left out": ("norm", "(x[i] - norm_running_mean[c]) * rsqrtf(norm_running_var[c] + "
                        "1e-5f) + norm_bias[c]"),
    "bias left out": ("norm", NORM.format("0.0f", "1.0f").replace(" + norm_bias[c]", "")),
    "shift of one seed": ("drawn", "x[i] + shift[0]"),
    "flags as they were": ("flags", "i % 2 ? x[i] : -x[i]"),
    "few rows": ("table", "rows_weight[(index[r] & 127) * DIM_COLUMNS + c]"),
}  # fmt: skip


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return SimulatedDevice("H200")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Task]:
    folder = tmp_path_factory.mktemp("tasks")

    async def load() -> dict[str, Task]:
        found = {}
        for name, (init, names, body, inputs) in TASKS.items():
            path = folder / f"{name}.py"
            text = MODEL.format(init=init, names=names, body=body, inputs=inputs)
            path.write_text(HEAD + text)
            found[name] = await load_task(path)
        return found

    return asyncio.run(load())


def source_of(task: Task, value: str) -> str:
    """Return a kernel that computes one element a thread from all tensors."""
    prototype = header(task.full).split('extern "C" void launch(')[1].split(", void* workspace")[0]
    names = [argument.split()[-1] for argument in prototype.split(", ")]
    return f"""#include "task.cuh"
__global__ void each({prototype}) {{
    long long i = blockIdx.x * 128ll + threadIdx.x, r = i / DIM_COLUMNS, c = i % DIM_COLUMNS;
    if (i < OUT0_NUMEL) out0[i] = {value};
}}
extern "C" void launch({prototype}, void* workspace, cudaStream_t stream) {{
    each<<<(OUT0_NUMEL + 127) / 128, 128, 0, stream>>>({", ".join(names)});
}}
"""


async def verdict(device: SimulatedDevice, task: Task, value: str) -> StageResult:
    return await device.verify(task, source_of(task, value))


@pytest.mark.parametrize("name", every(16, KERNELS, lambda name: bool(KERNELS[name][2])))
async def test_an_honest_kernel_passes_and_what_it_relies_on_is_told(
    device: SimulatedDevice, tasks: dict[str, Task], name: str
) -> None:
    task, value, relies_on = KERNELS[name]
    found = await verdict(device, tasks[task], value)
    assert found.outcome is Outcome.PASSED, found.reason
    told = str(found.facts.get("relies_on", ""))
    assert sorted(told.split(", ")) == sorted(relies_on.split(", "))
    assert bool(relies_on) == any(each.kind == "relies_on_constants" for each in found.diagnostics)


@pytest.mark.parametrize("name", every(16, WRONG, lambda name: WRONG[name][0]))
async def test_values_that_vary_cannot_be_relied_on(
    device: SimulatedDevice, tasks: dict[str, Task], name: str
) -> None:
    task, value = WRONG[name]
    found = await verdict(device, tasks[task], value)
    assert found.outcome is Outcome.WRONG_ANSWER, found.reason


async def test_places_of_maxima_are_compared(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    task = tasks["largest"]
    source = source_of(task, "place(x + i * DIM_COLUMNS)").replace(
        "__global__", "__device__ long long place(const float* x) {\n    int best = 0;\n"
        "    for (int c = 1; c < DIM_COLUMNS; c++) if (x[c] > x[best]) best = c;\n"
        "    return best;\n}\n__global__", 1,
    )  # fmt: skip
    found = await device.verify(task, source)
    assert found.outcome is Outcome.PASSED, found.reason
    last = await device.verify(task, source.replace("int c = 1", "int c = 2"))
    assert last.outcome is Outcome.WRONG_ANSWER


def test_task_cuh_names_the_constants(tasks: dict[str, Task]) -> None:
    assert "// buffer, a constant of the task, mask: bool" in header(tasks["causal"].full)
    assert "// buffer shift: float32" in header(tasks["drawn"].verify)
    assert tasks["norm"].variation.fixed == ("norm_weight", "norm_bias")

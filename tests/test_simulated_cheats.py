"""Kernels that do their work only where they are checked: each is found out, honest twins pass."""

from __future__ import annotations

import asyncio

import pytest
import simulated_kernels as kernels

from kernelblaster.harness.devices.protocol import Measurement
from kernelblaster.harness.devices.simulated import SimulatedDevice
from kernelblaster.harness.records import Outcome, Task
from kernelblaster.harness.tasks import load_task

SOFTMAX_TASK = """
import torch
import torch.nn as nn

ROWS = 4096
COLUMNS = 1024


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]
"""
TRANSPOSE_TASK = """
import torch
import torch.nn as nn

ROWS = 1024
COLUMNS = 512


class Model(nn.Module):
    def forward(self, x):
        return x.t().contiguous()


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]
"""
ROW = """
__device__ float warp_max(float v) {
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}
__device__ float warp_sum(float v) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
__device__ void row(float* o, const float* x) {
    int l = threadIdx.x & 31;
    float m = -INFINITY, s = 0;
    for (int i = l; i < DIM_COLUMNS; i += 32) m = fmaxf(m, x[i]);
    m = warp_max(m);
    for (int i = l; i < DIM_COLUMNS; i += 32) s += expf(x[i] - m);
    s = warp_sum(s);
    for (int i = l; i < DIM_COLUMNS; i += 32) o[i] = expf(x[i] - m) / s;
}
"""
WHOLE = "k<<<DIM_ROWS, 32, 0, stream>>>(out0, x, workspace);"
WORKSPACE = 'extern "C" size_t workspace_bytes() { return 4 * DIM_ROWS; }\n'
BYTES_OF_CODE = (
    '__attribute__((section(".text#"), used)) static const unsigned char code[] = {0xc3};'
)
SELF = "long long r = blockIdx.x; row(out0 + r * DIM_COLUMNS, x + r * DIM_COLUMNS);"


def softmax(body: str = SELF, host: str = WHOLE, top: str = "") -> str:
    """Return a softmax, one warp for each row unless told otherwise."""
    kernel = f"__global__ void k(float* out0, const float* x, void* ws) {{ {body} }}\n"
    return kernels.HEAD + top + ROW + kernel + kernels.LAUNCH + host + "}\n"


def transpose(columns: str) -> str:
    """Return a transpose by one narrow copy for each column, up to `columns`."""
    copies = (
        f"for (long long c = 0; c < {columns}; c++) cudaMemcpy2DAsync(out0 + c * DIM_ROWS, 4, "
        "x + c, 4 * DIM_COLUMNS, 4, DIM_ROWS, cudaMemcpyDeviceToDevice, stream);"
    )
    return kernels.HEAD + kernels.LAUNCH + copies + "}\n"


FULL = "DIM_ROWS > 1000"
REFUSED = {
    "launches one block at full size": softmax(
        host=f"if ({FULL}) {{ k<<<1, 32, 0, stream>>>(out0, x, workspace); return; }} {WHOLE}"
    ),
    "kernel returns at full size": softmax(f"if constexpr ({FULL}) return; {SELF}"),
    "blocks past the shrunken grid return": softmax(f"if (blockIdx.x >= 400) return; {SELF}"),
    "one block does all": softmax(
        "if (blockIdx.x != 5) return; for (long long r = 0; r < DIM_ROWS; r++) "
        "row(out0 + r * DIM_COLUMNS, x + r * DIM_COLUMNS);"
    ),
    "the first block does all": softmax(
        "if (blockIdx.x) return; for (long long r = 0; r < DIM_ROWS; r++) "
        "row(out0 + r * DIM_COLUMNS, x + r * DIM_COLUMNS);"
    ),
    "one element of each sector": softmax(
        f"if constexpr ({FULL}) {{ long long r = blockIdx.x; for (int i = 8 * threadIdx.x; "
        "i < DIM_COLUMNS; i += 256) out0[r * DIM_COLUMNS + i] = "
        f"expf(x[r * DIM_COLUMNS + i]) / 1000; return; }} {SELF}"
    ),
    "zeros at full size": softmax(
        f"if constexpr ({FULL}) {{ for (int i = threadIdx.x; i < DIM_COLUMNS; i += 32) "
        f"out0[blockIdx.x * DIM_COLUMNS + i] = 0; return; }} {SELF}"
    ),
    "zeros by a fill": softmax(
        f"if constexpr ({FULL}) return; {SELF}",
        host=f"cudaMemsetAsync(out0, 0, OUT0_NUMEL * 4, stream); {WHOLE}",
    ),
}
"""Right in verification, found out at full dimensions."""

TOLD_APART = {
    "by poison in the output": softmax(
        f"if (__float_as_uint(out0[blockIdx.x * DIM_COLUMNS]) != ~0u) return; {SELF}"
    ),
    "by poison in the workspace": softmax(
        f"if (((int*)ws)[blockIdx.x] != -1) return; {SELF}", top=WORKSPACE
    ),
    "by inputs that repeat": softmax(
        "long long i = blockIdx.x * DIM_COLUMNS, t = 1 << 20; if (i + 2 * t < X_NUMEL && "
        f"x[i] == x[i + t]) return; {SELF}"
    ),
}
"""Would skip their work if the profile run could be told from a verification run."""

HONEST = {
    "grid-stride": softmax(
        "for (long long r = blockIdx.x * 4 + threadIdx.x / 32; r < DIM_ROWS; r += gridDim.x * 4) "
        "row(out0 + r * DIM_COLUMNS, x + r * DIM_COLUMNS);",
        host="k<<<200, 128, 0, stream>>>(out0, x, workspace);",
    ),
    "persistent": softmax(
        "for (long long r = blockIdx.x; r < DIM_ROWS; r += gridDim.x) "
        "row(out0 + r * DIM_COLUMNS, x + r * DIM_COLUMNS);",
        host="k<<<132, 32, 0, stream>>>(out0, x, workspace);",
    ),
    "a third of the blocks has nothing to do": softmax(
        "long long r = blockIdx.x / 3 * 2 + blockIdx.x % 3; if (blockIdx.x % 3 == 2) return; "
        "row(out0 + r * DIM_COLUMNS, x + r * DIM_COLUMNS);",
        host="k<<<DIM_ROWS / 2 * 3, 32, 0, stream>>>(out0, x, workspace);",
    ),
    "half of the rows in each of two launches": softmax(
        host="k<<<DIM_ROWS / 2, 32, 0, stream>>>(out0, x, workspace);"
        "k<<<DIM_ROWS - DIM_ROWS / 2, 32, 0, stream>>>(out0 + DIM_ROWS / 2 * DIM_COLUMNS, "
        "x + DIM_ROWS / 2 * DIM_COLUMNS, workspace);"
    ),
    "copy, then in place": softmax(
        "long long r = blockIdx.x; row(out0 + r * DIM_COLUMNS, out0 + r * DIM_COLUMNS);",
        host="cudaMemcpyAsync(out0, x, 4 * X_NUMEL, cudaMemcpyDeviceToDevice, stream);" + WHOLE,
    ),
}

TRANSPOSE_KERNEL = (
    kernels.HEAD
    + """
__global__ void k(const float* x, float* y) {
    long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < X_NUMEL) y[i % DIM_COLUMNS * DIM_ROWS + i / DIM_COLUMNS] = x[i];
}
"""
    + kernels.LAUNCH
    + "k<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(x, out0); }\n"
)
ATOMIC_ROW_SUM = (
    kernels.HEAD
    + """
__global__ void k(const float* x, float* y) {
    long long row = blockIdx.x / 4, part = blockIdx.x % 4;
    float sum = 0;
    x += row * X_SIZE_1;
    for (long long i = part * 32 + threadIdx.x; i < X_SIZE_1; i += 128) sum += x[i];
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (threadIdx.x == 0) atomicAdd(y + row, sum);
}
"""
    + kernels.LAUNCH
    + "cudaMemsetAsync(out0, 0, OUT0_NUMEL * 4, stream);"
    "k<<<4 * X_SIZE_0, 32, 0, stream>>>(x, out0); }\n"
)


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return SimulatedDevice("H100")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Task]:
    folder = tmp_path_factory.mktemp("tasks")
    texts = {"softmax": SOFTMAX_TASK, "transpose": TRANSPOSE_TASK, "row_sum": kernels.ROW_SUM_TASK}

    async def load() -> dict[str, Task]:
        found = {}
        for name, text in texts.items():
            path = folder / f"{name}.py"
            path.write_text(text)
            found[name] = await load_task(path)
        return found

    return asyncio.run(load())


async def profile(device: SimulatedDevice, task: Task, source: str) -> Measurement:
    """Verify, which must pass, then profile."""
    verdict = await device.verify(task, source)
    assert verdict.outcome is Outcome.PASSED, verdict.reason
    return await device.profile(task, source)


@pytest.fixture(scope="module")
def honest(device: SimulatedDevice, tasks: dict[str, Task]) -> float:
    """Microseconds of the plain kernel."""
    measured = asyncio.run(profile(device, tasks["softmax"], softmax()))
    assert measured.timing is not None, measured.stage.reason
    assert int(measured.stage.facts["full_size_checked"]) > 10_000
    return measured.timing.microseconds


@pytest.mark.parametrize("name", REFUSED)
async def test_work_left_out_is_refused(
    device: SimulatedDevice, tasks: dict[str, Task], name: str
) -> None:
    measured = await profile(device, tasks["softmax"], REFUSED[name])
    outcome, reason = measured.stage.outcome, measured.stage.reason
    if name == "zeros at full size":
        assert outcome is Outcome.WRONG_ANSWER and "at full dimensions out0[" in reason
    else:
        assert outcome in (Outcome.UNSUPPORTED, Outcome.WRONG_ANSWER), reason
        assert "at full dimensions" in reason
    assert measured.timing is None


@pytest.mark.parametrize("name", TOLD_APART)
async def test_a_profile_run_looks_like_a_verification(
    device: SimulatedDevice, tasks: dict[str, Task], honest: float, name: str
) -> None:
    measured = await profile(device, tasks["softmax"], TOLD_APART[name])
    assert measured.timing is not None, measured.stage.reason
    assert measured.timing.microseconds > 0.95 * honest


@pytest.mark.parametrize("name", HONEST)
async def test_honest_kernels_are_timed(
    device: SimulatedDevice, tasks: dict[str, Task], name: str
) -> None:
    measured = await profile(device, tasks["softmax"], HONEST[name])
    assert measured.timing is not None, measured.stage.reason


async def test_a_reduction_by_atomics_is_timed(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    measured = await profile(device, tasks["row_sum"], ATOMIC_ROW_SUM)
    assert measured.profile is not None, measured.stage.reason
    assert [launch.kernel for launch in measured.profile.launches] == ["cudaMemsetAsync", "k"]
    assert measured.stage.facts["full_size_checked"] == 0


async def test_copies_take_time(device: SimulatedDevice, tasks: dict[str, Task]) -> None:
    measured = await profile(device, tasks["softmax"], HONEST["copy, then in place"])
    assert measured.profile is not None and measured.timing is not None
    copy, kernel = measured.profile.launches
    assert copy.kernel == "cudaMemcpyAsync" and copy.bottleneck == "dram"
    least = 2 * 4 * 4096 * 1024 / (device.gpu.dram_gigabytes_per_second * 1e3)
    assert copy.microseconds > least
    assert measured.timing.microseconds >= copy.microseconds + 0.9 * kernel.microseconds


async def test_a_transpose_by_narrow_copies_costs_more_than_a_kernel(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    skipping = await profile(
        device, tasks["transpose"], transpose("(DIM_COLUMNS > 500 ? 1 : DIM_COLUMNS)")
    )
    assert skipping.stage.outcome is Outcome.UNSUPPORTED
    whole = await profile(device, tasks["transpose"], transpose("DIM_COLUMNS"))
    naive = await profile(device, tasks["transpose"], TRANSPOSE_KERNEL)
    assert whole.timing is not None and naive.timing is not None, naive.stage.reason
    assert whole.timing.microseconds > 10 * naive.timing.microseconds


async def test_another_sample_takes_other_blocks(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    source = HONEST["a third of the blocks has nothing to do"]
    first = await device.profile(tasks["softmax"], source)
    again = await device.profile(tasks["softmax"], source, sample=0)
    other = await device.profile(tasks["softmax"], source, sample=1)
    assert first == again
    assert other.timing is not None and other != first


async def test_machine_code_among_data_is_forbidden(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    for line in (BYTES_OF_CODE, '#if __has_include("/etc/passwd")\n#endif'):
        result = await device.compile(tasks["softmax"], softmax(top=line + "\n"))
        assert result.outcome is Outcome.FORBIDDEN, result.reason
        assert result.diagnostics[0].line is not None

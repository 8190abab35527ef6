"""What a simulated profile believes of work left out and of copies; tests/exploits has the rest."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
import simulated_kernels as kernels
from exploits import corpus
from often_or_seldom import every

from kernelblaster.harness.devices.protocol import Measurement
from kernelblaster.harness.devices.simulated import full_dimensions
from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.full_case import FullCase, NoFullCase, prepare_full_case_now
from kernelblaster.harness.task.loading import full_case_directories, load_task
from kernelblaster.tools.evaluation.file import evaluate_file

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
SELF = "long long r = blockIdx.x; row(out0 + r * DIM_COLUMNS, x + r * DIM_COLUMNS);"
SLOWLY = f"for (int turn = 0; turn < (DIM_ROWS > 1000 ? 8 : 1); turn++) {{ {SELF} }}"
"""So much work that not all blocks are run where some of them tell the time."""


ROUNDING_TASK = """
import torch
import torch.nn as nn

N = 65536


class Model(nn.Module):
    def forward(self, x):
        return (x + 4096.0) - 4096.0


def get_inputs():
    return [torch.randn(N)]
"""
EXACT = (
    kernels.HEAD
    + "__global__ void k(float* y, const float* x) {\n"
    + "    int i = blockIdx.x * 256 + threadIdx.x;\n"
    + "    if (i < X_NUMEL) y[i] = x[i] %s;\n}\n"
    + kernels.LAUNCH
    + "k<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(out0, x); }\n"
)
"""More precise than PyTorch, which rounds to a four-thousandth."""


def softmax(body: str = SELF, host: str = WHOLE, top: str = "") -> str:
    """Return a softmax, one warp for each row unless told otherwise."""
    kernel = f"__global__ void k(float* out0, const float* x, void* ws) {{ {body} }}\n"
    return kernels.HEAD + top + ROW + kernel + kernels.LAUNCH + host + "}\n"


TRANSPOSE_COPIES = (
    kernels.HEAD
    + kernels.LAUNCH
    + "for (long long c = 0; c < DIM_COLUMNS; c++) cudaMemcpy2DAsync(out0 + c * DIM_ROWS, 4, "
    "x + c, 4 * DIM_COLUMNS, 4, DIM_ROWS, cudaMemcpyDeviceToDevice, stream); }\n"
)
"""A transpose by one narrow copy for each column."""
BY_WAY_OF_THE_WORKSPACE = softmax(
    "float* w = (float*)ws; long long r = blockIdx.x * DIM_COLUMNS; if (DIM_ROWS <= 1000 || %s) "
    "row(w + r, x + r); else for (int i = threadIdx.x; i < DIM_COLUMNS; i += 32) w[r + i] = 0.25f;",
    host=WHOLE
    + "cudaMemcpyAsync(out0, workspace, 4 * X_NUMEL, cudaMemcpyDeviceToDevice, stream);",
    top='extern "C" size_t workspace_bytes() { return 4 * X_NUMEL; }\n',
)
REPEATING_INPUTS = softmax(
    "long long i = blockIdx.x * DIM_COLUMNS, t = 1 << 20; if (i + 2 * t < X_NUMEL && "
    f"x[i] == x[i + t]) return; {SELF}"
)
"""Would skip its work if the inputs of a profile repeated what fits into a verification."""
ONE_ROW_IN_TWENTY = softmax(f"if (DIM_ROWS > 1000 && blockIdx.x % 20 == 7) return; {SELF}")
"""Leaves out little enough to pass for complete, by a sample of blocks."""
THIRD_IDLE = softmax(
    "long long r = blockIdx.x / 3 * 2 + blockIdx.x % 3; if (blockIdx.x % 3 == 2) return; "
    "row(out0 + r * DIM_COLUMNS, x + r * DIM_COLUMNS);",
    host="k<<<DIM_ROWS / 2 * 3, 32, 0, stream>>>(out0, x, workspace);",
)
COPY_THEN_IN_PLACE = softmax(
    "long long r = blockIdx.x; row(out0 + r * DIM_COLUMNS, out0 + r * DIM_COLUMNS);",
    host="cudaMemcpyAsync(out0, x, 4 * X_NUMEL, cudaMemcpyDeviceToDevice, stream);" + WHOLE,
)
HALVES = softmax(
    host="k<<<DIM_ROWS / 2, 32, 0, stream>>>(out0, x, workspace);"
    "k<<<DIM_ROWS - DIM_ROWS / 2, 32, 0, stream>>>(out0 + DIM_ROWS / 2 * DIM_COLUMNS, "
    "x + DIM_ROWS / 2 * DIM_COLUMNS, workspace);"
)

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

TRAPS_ONCE = softmax(f"if (DIM_ROWS > 1000 && blockIdx.x == 1717) __trap(); {SLOWLY}")
"""Ends in one block that no sample is likely to run."""

LOOKS = softmax(
    "float* w = (float*)ws; if (DIM_ROWS <= 1000) {" + SELF + "return; }"
    "if (threadIdx.x == 0) w[blockIdx.x] = 1 + w[(blockIdx.x + 997) % DIM_ROWS];"
    "if (blockIdx.x == 1717) for (int n = 0; n < 80000000; n++) ((volatile float*)w)[DIM_ROWS] = n;"
    + SELF,
    top='extern "C" size_t workspace_bytes() { return 4 * DIM_ROWS + 4; }\n',
)
"""Goes by what a far block leaves, and all blocks are too much work to be run."""

PARTS = softmax(
    "for (int n = 0; n < (DIM_ROWS > 1000 ? 20000 : 20); n++)"
    "((volatile float*)ws)[blockIdx.x] = n;",
    host="k<<<DIM_ROWS, 32, 0, stream>>>(out0, x, workspace);"
    "last<<<DIM_ROWS, 32, 0, stream>>>(out0, x, (float*)workspace);",
    top='extern "C" size_t workspace_bytes() { return 4 * DIM_ROWS; }\n',
).replace(
    "__global__ void k(",
    "__global__ void last(float* out0, const float* x, const float* w) {"
    "float all = 0; for (int i = 0; i < DIM_ROWS; i++) all += w[i];"
    + SELF.replace("x + r", "x + (all == -1 ? 0 : r)") + "}\n__global__ void k(",
)
"""Each row goes by what all blocks of another launch leave, which are too much work to be run."""


MANY = 10
"""Launches: a confirmation runs each whole, in two orders."""


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return SimulatedDevice("H100")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Task]:
    transpose = tmp_path_factory.mktemp("tasks") / "transpose.py"
    transpose.write_text(TRANSPOSE_TASK)
    paths = [transpose, corpus.FOLDER / "tasks" / "softmax.py"]

    async def load() -> dict[str, Task]:
        loaded = await asyncio.gather(*map(load_task, paths))
        return {task.name: task for task in loaded}

    return asyncio.run(load())


@pytest.fixture
async def rounding(tmp_path: Path) -> Task:
    """ROUNDING_TASK, of which PyTorch has not yet answered anything at full dimensions."""
    path = tmp_path / "rounding.py"
    path.write_text(ROUNDING_TASK)
    task = await load_task(path)
    for folder in full_case_directories(task):
        shutil.rmtree(folder, ignore_errors=True)
    return task


def killed(*_: object, **__: object) -> dict[str, object]:
    """Stand for a reference that the machine ended."""
    raise UserError("the reference was killed")


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


@pytest.mark.seldom
async def test_the_inputs_of_a_profile_do_not_repeat(
    device: SimulatedDevice, tasks: dict[str, Task], honest: float
) -> None:
    measured = await profile(device, tasks["softmax"], REPEATING_INPUTS)
    assert measured.timing is not None, measured.stage.reason
    assert measured.timing.microseconds > 0.95 * honest


@pytest.mark.seldom
async def test_what_copies_carry_to_the_output_is_compared(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    honest = await profile(device, tasks["softmax"], BY_WAY_OF_THE_WORKSPACE % "true")
    assert honest.timing is not None, honest.stage.reason
    assert int(honest.stage.facts["full_size_checked"]) > 10_000
    cheat = await profile(device, tasks["softmax"], BY_WAY_OF_THE_WORKSPACE % "false")
    assert cheat.stage.outcome is Outcome.WRONG_ANSWER and "got 0.25" in cheat.stage.reason


async def test_copies_that_cannot_be_compared_are_told(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    twice = (BY_WAY_OF_THE_WORKSPACE % "true").replace(
        "row(w + r, x + r)", "for (int i = 0; i < 8; i++) row(w + r, x + r)"
    )
    fill = "cudaMemsetAsync(workspace, 0, 4 * X_NUMEL, stream);"
    measured = await device.profile(tasks["softmax"], twice.replace(WHOLE, fill + WHOLE))
    assert measured.timing is not None, measured.stage.reason
    assert "copies carry" in str(measured.stage.facts["full_size_unchecked"])


async def test_a_confirmation_compares_the_whole_answer(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    confirmed = await device.profile(tasks["softmax"], ONE_ROW_IN_TWENTY, sample=1)
    assert confirmed.stage.outcome is Outcome.WRONG_ANSWER and confirmed.timing is None
    assert "not written, though all blocks were run" in confirmed.stage.reason
    whole = await device.profile(tasks["softmax"], HALVES, sample=1)
    assert whole.timing is not None, whole.stage.reason


async def test_a_fault_of_any_block_fails_a_confirmation(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    assert (await device.profile(tasks["softmax"], TRAPS_ONCE)).timing is not None
    confirmed = await device.profile(tasks["softmax"], TRAPS_ONCE, sample=1)
    assert confirmed.stage.outcome is Outcome.CRASHED and confirmed.timing is None
    assert "trap" in confirmed.stage.reason


@pytest.mark.seldom
async def test_a_confirmation_that_could_not_compare_says_so(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    confirmed = await device.profile(tasks["softmax"], PARTS, sample=1)
    assert confirmed.timing is not None, confirmed.stage.reason
    assert confirmed.stage.facts["full_size_checked"] == 0
    assert "hang on blocks that were not run" in str(confirmed.stage.facts["full_size_unchecked"])
    assert "0 % of the elements" in str(confirmed.stage.facts["full_size_coverage"])
    (found,) = confirmed.stage.diagnostics
    assert found.kind == "not_compared" and "nothing was compared" in found.message


@pytest.mark.seldom
async def test_blocks_that_look_at_others_are_not_timed_by_a_few(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    measured = await device.profile(tasks["softmax"], LOOKS)
    assert measured.stage.outcome is Outcome.UNSUPPORTED, measured.stage.facts
    assert "where others of the launch write" in measured.stage.reason


async def test_without_an_answer_at_full_dimensions_each_result_says_so(
    device: SimulatedDevice, tasks: dict[str, Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelblaster.harness.task.full_case.FULL_CASE_BYTES", 1000)
    measured = await device.profile(tasks["softmax"], softmax())
    assert measured.timing is not None, measured.stage.reason
    assert "over the limit" in str(measured.stage.facts["full_size_unchecked"])
    assert [found.kind for found in measured.stage.diagnostics] == ["not_compared"]


async def test_copies_take_time(device: SimulatedDevice, tasks: dict[str, Task]) -> None:
    measured = await profile(device, tasks["softmax"], COPY_THEN_IN_PLACE)
    assert measured.profile is not None and measured.timing is not None
    copy, kernel = measured.profile.launches
    assert copy.kernel == "cudaMemcpyAsync" and copy.bottleneck == "launch"
    least = 2 * 4 * 2048 * 512 / (device.gpu.dram_gigabytes_per_second * 1e3)
    assert copy.microseconds > least
    # The start of the kernel is hidden in part behind the copy.
    assert measured.timing.microseconds >= 0.85 * (copy.microseconds + kernel.microseconds)


@pytest.mark.seldom
async def test_a_transpose_by_narrow_copies_costs_more_than_a_kernel(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    whole = await device.profile(tasks["transpose"], TRANSPOSE_COPIES)
    naive = await device.profile(tasks["transpose"], TRANSPOSE_KERNEL)
    assert whole.timing is not None and naive.timing is not None, naive.stage.reason
    assert whole.timing.microseconds > 10 * naive.timing.microseconds


async def test_many_launches_alike_take_what_one_takes_as_often(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    source = softmax(host=f"for (int i = 0; i < {MANY}; i++) {WHOLE}")
    measured = await device.profile(tasks["softmax"], source)
    assert measured.profile is not None and measured.timing is not None, measured.stage.reason
    launches = measured.profile.launches
    assert len(launches) == MANY
    # The start of all but the first is hidden in part.
    assert 0.8 < measured.timing.microseconds / (MANY * launches[0].microseconds) < 1.001
    assert measured.timing.elapsed_cycles is not None
    assert [each.like for each in launches] == [None, *[0] * (MANY - 1)]
    confirmed = await device.profile(tasks["softmax"], source, sample=1)
    assert confirmed.stage.outcome is Outcome.PASSED, confirmed.stage.reason


async def test_another_sample_takes_other_blocks(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    source = THIRD_IDLE
    first = await device.profile(tasks["softmax"], source)
    again = await device.profile(tasks["softmax"], source, sample=0)
    other = await device.profile(tasks["softmax"], source, sample=1)
    assert first == again
    assert other.timing is not None and other != first


async def test_evaluate_confirms_at_full_dimensions_too(tmp_path: Path) -> None:
    kernel = tmp_path / "k.cu"
    kernel.write_text(TRAPS_ONCE)
    task = corpus.FOLDER / "tasks" / "softmax.py"
    done = await evaluate_file(kernel, task, "simulated", "H100", {}, confirm=True)
    assert done.outcome is Outcome.CRASHED and done.timing is None


@pytest.mark.seldom
async def test_pytorchs_own_error_at_full_dimensions_is_found_where_it_matters(
    device: SimulatedDevice, rounding: Task
) -> None:

    async def profile(source: str) -> tuple[Outcome, bool]:
        measured = await device.profile(rounding, source)
        found = prepare_full_case_now(rounding)
        assert isinstance(found, FullCase)
        return measured.stage.outcome, found.exact

    as_pytorch = EXACT % "+ 4096.0f - 4096.0f"
    assert await profile(as_pytorch) == (Outcome.PASSED, False)
    assert await profile(EXACT % "") == (Outcome.PASSED, True)
    assert await profile(EXACT % "* 1.1f") == (Outcome.WRONG_ANSWER, True)


async def test_what_a_first_profile_waits_for_is_made_meanwhile(
    device: SimulatedDevice, rounding: Task
) -> None:
    await device.compile(rounding, EXACT % "")
    for _ in range(300):
        if all((folder / "case.json").is_file() for folder in full_case_directories(rounding)[1:]):
            break
        await asyncio.sleep(0.1)
    else:
        pytest.fail("nothing was made")
    assert isinstance(prepare_full_case_now(rounding), FullCase)


async def test_what_cannot_be_answered_in_double_precision_now_is_not_called_wrong(
    device: SimulatedDevice, rounding: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare_full_case_now(rounding)
    assert isinstance(prepared, FullCase) and not prepared.exact

    with monkeypatch.context() as patched:
        patched.setattr("kernelblaster.harness.task.full_case.run_reference", killed)
        for sample in (0, 1):
            measured = await device.profile(rounding, EXACT % "", sample)
            assert measured.stage.outcome is Outcome.PASSED
            told = str(measured.stage.facts["full_size_unchecked"])
            assert "PyTorch's own error is not known" in told and "was killed" in told
    measured = await device.profile(rounding, EXACT % "", 1)
    assert "full_size_unchecked" not in measured.stage.facts


async def test_a_machine_that_has_no_memory_now_may_have_some_later(
    rounding: Task, monkeypatch: pytest.MonkeyPatch
) -> None:

    with monkeypatch.context() as patched:
        patched.setattr("kernelblaster.harness.task.full_case.run_reference", killed)
        found = prepare_full_case_now(rounding)
        assert isinstance(found, NoFullCase) and "was killed" in found.reason
    assert isinstance(prepare_full_case_now(rounding), FullCase)


ONE_OF_FEW = (
    kernels.HEAD
    + """
__global__ void k(float* y, const float* x) {
    if (blockIdx.x) return;
    for (long long i = threadIdx.x; i < X_NUMEL; i += 256) y[i] = (x[i] + 4096.0f) - 4096.0f;
}
"""
    + kernels.LAUNCH
    + "k<<<%d, 256, 0, stream>>>(out0, x); }\n"
)


@pytest.mark.parametrize("blocks", every(4, [2, 8, 64, 128, 300]))
async def test_a_grid_whose_first_block_does_all_has_the_time_of_that_block_or_none(
    device: SimulatedDevice, rounding: Task, blocks: int
) -> None:
    """Idle blocks beside it gain nothing."""
    alone = (await device.profile(rounding, ONE_OF_FEW % 1)).timing
    assert alone is not None
    for sample in (0, 1, 2):
        measured = await device.profile(rounding, ONE_OF_FEW % blocks, sample)
        if measured.timing is None:
            assert measured.stage.outcome is Outcome.UNSUPPORTED
        else:
            assert measured.timing.microseconds > 0.95 * alone.microseconds


@pytest.mark.parametrize("sample", [0, 5])
async def test_an_input_that_is_written_to_is_seen_whatever_pytorchs_error_is(
    device: SimulatedDevice, tasks: dict[str, Task], monkeypatch: pytest.MonkeyPatch, sample: int
) -> None:
    monkeypatch.setattr(
        full_dimensions, "exact_full_case_now", lambda *_: NoFullCase(reason="not to be had")
    )
    clear = "if (DIM_ROWS > 1000) ((float*)x)[blockIdx.x * DIM_COLUMNS] = 0;"
    source = softmax(f"{SELF} __syncwarp(); {clear}")
    measured = await device.profile(tasks["softmax"], source, sample)
    assert measured.stage.outcome is Outcome.WRONG_ANSWER, measured.stage.reason
    assert "modified its input x" in measured.stage.reason

"""The simulated device: each wrong kernel gets its outcome, right ones pass, times are ordered."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import simulated_kernels as kernels
from conformance.device import DeviceConformance
from often_or_seldom import every
from worker_processes import host_halves_of

from kernelblaster.harness.build.cache import cache_root
from kernelblaster.harness.devices.registry import open_device
from kernelblaster.harness.devices.simulated import runs
from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.profiles import LaunchProfile
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.harness.task.cases import prepare_cases_now
from kernelblaster.harness.task.full_case import prepare_full_case_now
from kernelblaster.harness.task.loading import load_task


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return SimulatedDevice("H200")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Task]:
    folder = tmp_path_factory.mktemp("tasks")

    async def load() -> dict[str, Task]:
        found = {}
        for name in ("scale", "row_sum", "matmul", "transpose"):
            path = folder / f"{name}.py"
            path.write_text(getattr(kernels, f"{name.upper()}_TASK"))
            found[name] = await load_task(path)
        return found

    return asyncio.run(load())


@pytest.fixture(scope="module")
def task(tasks: dict[str, Task]) -> Task:
    return tasks["scale"]


class TestConformance(DeviceConformance):
    """The suite that every device passes."""


@pytest.mark.parametrize("name", every(6, kernels.WRONG, always=lambda name: name == "race"))
async def test_a_wrong_kernel_is_refused(device: SimulatedDevice, task: Task, name: str) -> None:
    source, outcomes, words = kernels.WRONG[name]
    result = await device.verify(task, source)
    assert result.outcome.value in outcomes.split("|"), f"{result.outcome}: {result.reason}"
    for word in words:
        assert word in result.reason
    assert result.diagnostics


async def test_an_endless_host_loop_times_out(task: Task) -> None:
    device = SimulatedDevice("H200")
    result = await device.verify(task, kernels.ENDLESS_HOST_LOOP)
    assert result.outcome is Outcome.TIMED_OUT
    assert "host code did not return within 5 s" in result.reason


async def test_a_cancelled_verification_leaves_no_process(task: Task) -> None:
    device = SimulatedDevice("H200")
    running = asyncio.create_task(device.verify(task, kernels.ENDLESS_HOST_LOOP))
    for _ in range(600):
        await asyncio.sleep(0.05)
        if host_halves_of(os.getpid()):
            break
    assert host_halves_of(os.getpid()), "the host half was started"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not host_halves_of(os.getpid())


@pytest.mark.parametrize(
    "source", [kernels.SCALE_VECTOR, kernels.SCALE_WARP_BLOCKS, kernels.WORKSPACE_AND_TWO_LAUNCHES]
)
async def test_right_kernels_pass(device: SimulatedDevice, task: Task, source: str) -> None:
    result = await device.verify(task, source)
    assert result.outcome is Outcome.PASSED, result.reason


@pytest.mark.parametrize(
    ("name", "source"),
    every(2, [("row_sum", kernels.ROW_SUM_BLOCK), ("row_sum", kernels.ROW_SUM_WARP),
              ("matmul", kernels.MATMUL_REGISTERS), ("matmul", kernels.MATMUL_TILED),
              ("transpose", kernels.TRANSPOSE_PADDED)]),
)  # fmt: skip
async def test_optimised_kernels_pass(
    device: SimulatedDevice, tasks: dict[str, Task], name: str, source: str
) -> None:
    result = await device.verify(tasks[name], source)
    assert result.outcome is Outcome.PASSED, result.reason


@pytest.mark.seldom
async def test_row_sums_by_thread_block_and_warp_are_ordered(
    device: SimulatedDevice, tasks: dict[str, Task]
) -> None:
    by_thread, by_block, by_warp = await _profiles(
        device, tasks["row_sum"],
        kernels.ROW_SUM_THREAD, kernels.ROW_SUM_BLOCK, kernels.ROW_SUM_WARP,
    )  # fmt: skip
    assert by_thread.microseconds > 2 * by_block.microseconds
    assert by_block.microseconds > by_warp.microseconds
    assert any("Uncoalesced" in sentence for sentence in by_thread.advice)
    assert by_warp.bottleneck in ("dram", "latency")
    sectors = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
    assert by_thread.metrics[sectors] == pytest.approx(32)
    assert by_warp.metrics[sectors] == pytest.approx(4)


async def test_matrix_products_are_ordered(device: SimulatedDevice, tasks: dict[str, Task]) -> None:
    naive, tiled, registers = await _profiles(
        device, tasks["matmul"],
        kernels.MATMUL_NAIVE, kernels.MATMUL_TILED, kernels.MATMUL_REGISTERS,
    )  # fmt: skip
    # Measured on an H200 for kernels alike: 3138, 1847 and 518 us.
    assert 1.2 < naive.microseconds / tiled.microseconds < 3
    assert 2 < tiled.microseconds / registers.microseconds < 6
    assert naive.bottleneck == "lsu" and tiled.bottleneck == "shared_memory"
    fma = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
    assert naive.metrics[fma] == pytest.approx(2048**3, rel=0.01)


@pytest.mark.seldom
async def test_transposes_are_ordered(device: SimulatedDevice, tasks: dict[str, Task]) -> None:
    naive, conflict, padded = await _profiles(
        device, tasks["transpose"],
        kernels.TRANSPOSE_NAIVE, kernels.TRANSPOSE_CONFLICT, kernels.TRANSPOSE_PADDED,
    )  # fmt: skip
    assert naive.microseconds > 1.3 * conflict.microseconds > 1.3 * padded.microseconds
    wavefronts = "memory_l1_wavefronts_shared"
    assert conflict.metrics[wavefronts] > 10 * padded.metrics[wavefronts]
    assert any("bank conflicts" in sentence for sentence in conflict.advice)
    assert padded.metrics["dram__bytes_read.sum"] == pytest.approx(4 * 4096**2, rel=0.05)


@pytest.mark.seldom
async def test_width_and_block_size_of_an_elementwise_kernel(
    device: SimulatedDevice, task: Task
) -> None:
    scalar, vector, small = await _profiles(
        device, task, kernels.SCALE, kernels.SCALE_VECTOR, kernels.SCALE_WARP_BLOCKS
    )
    assert vector.microseconds < 0.95 * scalar.microseconds
    assert small.microseconds > 2 * scalar.microseconds
    assert small.bottleneck == "launch"
    assert any("Blocks of 32 threads" in sentence for sentence in small.advice)


async def test_a_profile_is_deterministic_and_marked(device: SimulatedDevice, task: Task) -> None:
    first = await device.profile(task, kernels.WORKSPACE_AND_TWO_LAUNCHES)
    second = await device.profile(task, kernels.WORKSPACE_AND_TWO_LAUNCHES)
    assert first == second
    assert first.profile is not None and first.timing is not None
    made = [(launch.kernel, launch.dynamic_shared_bytes) for launch in first.profile.launches]
    assert made == [
        ("cudaMemcpyAsync", 0), ("cudaMemsetAsync", 0), ("first", 0), ("second", 65536)
    ]  # fmt: skip
    assert first.timing.provenance is Provenance.SIMULATED
    assert len(first.timing.samples) == 2


async def test_sizes_written_into_a_source_are_told(device: SimulatedDevice, task: Task) -> None:
    written = kernels.SCALE.replace("X_NUMEL", "4194304")
    failed = await device.verify(task, written)
    assert failed.outcome is Outcome.OUT_OF_BOUNDS
    assert "if the 4194304 in line 8 is DIM_N, as at full dimensions" in failed.reason
    assert failed.diagnostics[-1].kind == "written_size" and failed.diagnostics[-1].line == 8
    other = await device.verify(task, kernels.SCALE.replace("* 2.0f", "* 3.0f"))
    assert "task.cuh" not in other.reason


UNEVEN = (
    kernels.HEAD
    + """
namespace {
__global__ void scale(const float* x, float* y) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    float v = x[i];
    int turns = %s;
    for (int turn = 0; turn < turns; ++turn) v = __sinf(v);
    y[i] = v > 1e30f ? v : x[i] * 2.0f + 1.0f;
}
}
"""
    + kernels.LAUNCH
    + "\n    scale<<<X_NUMEL / 256, 256, 0, stream>>>(x, out0);\n}\n"
)
"""Right, in blocks that do so many turns before."""


async def test_the_same_code_runs_on_the_same_blocks_wherever_it_was_built(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, times = UNEVEN % "blockIdx.x * 2654435761u % 97", []
    usual = cache_root()
    prepare_cases_now(task)
    prepare_full_case_now(task)
    for cache in ("here", "there"):
        (tmp_path / cache).mkdir()
        for kept in ("native", "cases", "full"):
            (tmp_path / cache / kept).symlink_to(usual / kept)
        monkeypatch.setenv("KERNELBLASTER_CACHE", str(tmp_path / cache))
        measured = await SimulatedDevice("H200").profile(task, source)
        assert measured.timing, measured.stage.reason
        times.append(measured.timing.samples)
    assert times[0] == times[1] and times[0][0] != times[0][1]


async def test_blocks_with_more_and_less_work_are_timed(
    device: SimulatedDevice, task: Task
) -> None:
    even, triangle = await _profiles(
        device, task, UNEVEN % "512", UNEVEN % "blockIdx.x * 1024 / gridDim.x"
    )
    assert triangle.microseconds == pytest.approx(even.microseconds, rel=0.2)


async def test_one_block_with_most_of_the_work_is_not_timed_by_the_others(
    device: SimulatedDevice, task: Task
) -> None:
    for sample in range(3):
        measured = await device.profile(task, UNEVEN % "blockIdx.x ? 0 : 100000", sample)
        assert measured.stage.outcome is Outcome.UNSUPPORTED and measured.timing is None
        assert "blocks differ so much in their work" in measured.stage.reason


def test_unknown_names_are_user_errors() -> None:
    with pytest.raises(UserError, match="H200"):
        open_device("simulated", "GT 220")
    with pytest.raises(UserError, match="auto, simulated"):
        open_device("quantum", "H200")


async def _profiles(device: SimulatedDevice, task: Task, *sources: str) -> list[LaunchProfile]:
    found = []
    for source in sources:
        measured = await device.profile(task, source)
        assert measured.profile is not None, _why(measured.stage)
        found.append(measured.profile.launches[0])
    return found


def _why(stage: StageResult) -> str:
    return f"{stage.outcome}: {stage.reason}"


async def test_a_kernel_that_is_read_otherwise_than_by_ptxas_has_no_verdict(
    device: SimulatedDevice, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await device.verify(task, kernels.SCALE_VECTOR)).outcome is Outcome.PASSED
    monkeypatch.setattr(runs, "misreading", lambda toolchain, ptx, arch: "read otherwise")
    result = await device.verify(task, kernels.SCALE_VECTOR)
    measured = await device.profile(task, kernels.SCALE_VECTOR)
    for stage in (result, measured.stage):
        assert stage.outcome is Outcome.UNSUPPORTED and stage.reason == "read otherwise"
    assert measured.timing is None


async def test_cases_of_a_large_task_run_in_two_processes(
    device: SimulatedDevice, tasks: dict[str, Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tasks["row_sum"]
    once = await device.verify(task, kernels.ROW_SUM_BLOCK)
    assert 0 < task.verify.work < runs.MUCH_WORK
    monkeypatch.setattr(runs, "MUCH_WORK", 0)
    asked: list[tuple[str, ...]] = []
    real = runs.run_candidate

    def noted(request: dict[str, Any], *rest: Any) -> Any:
        asked.append(tuple(case["name"] for case in request["cases"]))
        return real(request, *rest)

    monkeypatch.setattr(runs, "run_candidate", noted)
    again = await device.verify(task, kernels.ROW_SUM_BLOCK)
    assert again == once and once.outcome is Outcome.PASSED
    first, second = sorted(asked, key=len, reverse=True)
    assert len(first) - len(second) in (0, 1) and not {*first} & {*second}
    assert len(first) + len(second) == once.facts["cases"]

"""The device on a real GPU: the suite every device passes, and what only a GPU can show."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import simulated_kernels as kernels
from conformance.device import DeviceConformance

from kernelblaster.harness.cuda.present_gpus import FoundGpu, find_gpus
from kernelblaster.harness.devices.cuda import CudaDevice
from kernelblaster.harness.devices.registry import device_choice, open_device
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.gpus import is_called
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.harness.task.loading import load_task


def why_no_gpu() -> str:
    try:
        CudaDevice()
    except UserError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("tasks") / "scale.py"
    path.write_text(kernels.SCALE_TASK)
    return asyncio.run(load_task(path))


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    reason = why_no_gpu()
    if reason:
        pytest.skip(reason)
    made = CudaDevice(candidate_seconds=5.0, with_compile=False)
    yield made
    made.close()


ON_A_GPU = {
    # What the simulated device finds by watching every access, and a GPU does not show.
    "read out of bounds": "passed|wrong_answer",  # The guard band holds NaN in one run of two.
    "race": "passed|wrong_answer|nondeterministic",
    "uninitialised shared read": "passed|wrong_answer|nondeterministic",
    "divergent barrier": "passed|crashed|wrong_answer|nondeterministic|timed_out",
    "unknown instruction": "passed|crashed",
}


@pytest.mark.gpu
class TestConformance(DeviceConformance):
    """The suite that every device passes."""


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(kernels.WRONG))
async def test_a_wrong_kernel_is_refused(device: CudaDevice, task: Task, name: str) -> None:
    source, outcomes, _ = kernels.WRONG[name]
    result = await device.verify(task, source)
    expected = ON_A_GPU.get(name, outcomes).split("|")
    assert result.outcome.value in expected, f"{result.outcome}: {result.reason}"
    if result.outcome is not Outcome.PASSED:
        assert result.diagnostics and "\n" not in result.reason


@pytest.mark.gpu
@pytest.mark.parametrize(
    "source", [kernels.SCALE_VECTOR, kernels.SCALE_WARP_BLOCKS, kernels.WORKSPACE_AND_TWO_LAUNCHES]
)
async def test_right_kernels_pass(device: CudaDevice, task: Task, source: str) -> None:
    result = await device.verify(task, source)
    assert result.outcome is Outcome.PASSED, result.reason
    assert result.facts["precision_ratio"] < 10


OTHERS_BLOCKS = kernels.HEAD + """
extern "C" size_t workspace_bytes() { return 64 << 20; }
__global__ void scale(const float* x, float* y, unsigned* space) {
    long long i = blockIdx.x * 256ll + threadIdx.x;
    volatile unsigned* ended = space + 1;
    __shared__ bool seen;
    if (threadIdx.x == 0) { BEFORE }
    __syncthreads();
    if (i < X_NUMEL) y[i] = seen ? 0.0f : x[i] * 2.0f + 1.0f;
    __syncthreads();
    if (threadIdx.x == 0) { AFTER }
}
""" + kernels.LAUNCH + """
    cudaMemsetAsync(workspace, 0, 64 << 20, stream);
    scale<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(x, out0, (unsigned*)workspace);
}
"""
LEAVES_OUT = {
    "where the block before has ended": (
        "seen = blockIdx.x > 100 && ended[blockIdx.x - 1];", "ended[blockIdx.x] = 1;"),
    "where nobody runs beside it": (
        "seen = atomicAdd(space, 1) == 0 && blockIdx.x > 100;", "atomicSub(space, 1);"),
    "where all blocks before it have ended": (
        "seen = blockIdx.x > 1 && ended[0] == blockIdx.x;",
        "__threadfence(); atomicAdd((unsigned*)ended, 1);"),
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("when", LEAVES_OUT)
async def test_blocks_also_run_one_after_another(
    device: CudaDevice, task: Task, when: str
) -> None:
    before, after = LEAVES_OUT[when]
    source = OTHERS_BLOCKS.replace("BEFORE", before).replace("AFTER", after)
    result = await device.verify(task, source)
    assert result.outcome in (Outcome.WRONG_ANSWER, Outcome.NONDETERMINISTIC), result.reason


@pytest.mark.gpu
async def test_blocks_that_wait_for_each_other_pass(device: CudaDevice, task: Task) -> None:
    source = kernels.HEAD + """
extern "C" size_t workspace_bytes() { return 4; }
__global__ void scale(const float* x, float* y, unsigned* arrived) {
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (*(volatile unsigned*)arrived < gridDim.x) { }
    }
    __syncthreads();
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < X_NUMEL; i += gridDim.x * 256ll)
        y[i] = x[i] * 2.0f + 1.0f;
}
""" + kernels.LAUNCH + """
    cudaMemsetAsync(workspace, 0, 4, stream);
    scale<<<100, 256, 0, stream>>>(x, out0, (unsigned*)workspace);
}
"""
    result = await device.verify(task, source)
    assert result.outcome is Outcome.PASSED, result.reason


@pytest.mark.gpu
async def test_a_time_is_measured_beside_pytorch(device: CudaDevice, task: Task) -> None:
    measured = await device.profile(task, kernels.WORKSPACE_AND_TWO_LAUNCHES)
    assert measured.timing is not None and measured.profile is not None, measured.stage.reason
    assert measured.timing.provenance is Provenance.EVENTS
    assert measured.stage.facts["eager_us"] > 0
    assert [launch.dynamic_shared_bytes for launch in measured.profile.launches] == [0, 65536]


@pytest.mark.gpu
async def test_a_faster_kernel_is_seen_to_be_faster(device: CudaDevice, task: Task) -> None:
    compared = await device.compare(task, kernels.SCALE, kernels.SCALE_WARP_BLOCKS)
    assert compared.ratio is not None, compared.stage.reason
    assert compared.ratio.is_faster and compared.ratio.half_width < 0.05


@pytest.mark.gpu
async def test_a_task_larger_than_the_gpu_is_one_line(device: CudaDevice, tmp_path: Path) -> None:
    path = tmp_path / "huge.py"
    path.write_text(kernels.SCALE_TASK.replace("4194304", str(1 << 37)))
    huge = await load_task(path)
    with pytest.raises(UserError, match="more memory than (this GPU has|others leave free)"):
        await device.verify(huge, kernels.SCALE)


# ---- without a GPU ----


H200 = FoundGpu(index=0, uuid="GPU-0", name="NVIDIA H200", capability=(9, 0),
                memory_bytes=1, driver="580.1")  # fmt: skip


@pytest.fixture
def with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with one H200, as far as anybody asks without using it."""
    monkeypatch.setattr("kernelblaster.harness.cuda.present_gpus.find_gpus", lambda: (H200,))
    monkeypatch.setattr("kernelblaster.harness.devices.cuda.find_gpus", lambda: (H200,))
    for place in ("task.pytorch", "devices.cuda"):
        monkeypatch.setattr(f"kernelblaster.harness.{place}.require_matching_torch", lambda _: None)


@pytest.mark.usefixtures("with_a_gpu")
def test_auto_takes_the_gpu_that_is_there_unless_another_is_named() -> None:
    assert device_choice("auto")[0] == "cuda"
    assert device_choice("auto", "h200")[0] == "cuda"
    assert open_device("auto", "").identity.gpu == "NVIDIA H200"
    kind, why = device_choice("auto", "A100")
    assert kind == "simulated" and "A100 is asked for and this machine has NVIDIA H200" in why
    with pytest.raises(UserError, match="--gpu A100: this machine has NVIDIA H200"):
        open_device("cuda", "A100")
    assert open_device("cuda:0", "NVIDIA H200").identity.kind == "cuda"
    with pytest.raises(UserError, match="no GPU 1"):
        open_device("cuda:0,1", "")


def test_auto_says_why_it_is_not_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_gpu() -> None:
        raise UserError("no NVIDIA driver: nvidia-smi is not on PATH")

    monkeypatch.setattr("kernelblaster.harness.cuda.present_gpus.find_gpus", no_gpu)
    kind, why = device_choice("auto")
    assert kind == "simulated" and "no NVIDIA driver" in why


@pytest.mark.parametrize("kind", ["quantum", "cuda:", "cuda:x", "simulated:0", "auto:1"])
def test_an_unknown_device_is_one_line(kind: str) -> None:
    with pytest.raises(UserError, match=f"unknown device '{kind}'"):
        open_device(kind, "H200")


@pytest.mark.parametrize(
    ("wanted", "same"),
    [("H200", True), ("h200", True), ("NVIDIA H200", True), ("GH200", False), ("H2", False)],
)
def test_a_gpu_is_called_by_whole_words(wanted: str, same: bool) -> None:
    assert is_called("NVIDIA H200", wanted) is same
    assert is_called("NVIDIA GeForce RTX 4090", "RTX4090")


def test_a_gpu_that_is_not_there_is_one_line() -> None:
    with pytest.raises(UserError, match="no GPU 3; this machine has 0: NVIDIA H200"):
        CudaDevice((3,), gpus=[H200])


def test_without_a_driver_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelblaster.harness.cuda import present_gpus as gpus

    gpus._all_gpus.cache_clear()
    monkeypatch.setattr(gpus.shutil, "which", lambda name: None)
    monkeypatch.setattr(gpus, "_PLACES", ())
    with pytest.raises(UserError, match="no NVIDIA driver"):
        find_gpus()

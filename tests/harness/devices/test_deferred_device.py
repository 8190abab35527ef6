"""The deferred device on real code: compiled here, judged by a simulated GPU in a slim process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import simulated_kernels as kernels
from conformance.device import DeviceConformance
from slim_host import SLIM, run_slim

from kernelblaster.harness.cuda.present_gpus import find_gpus
from kernelblaster.harness.devices.deferred import DeferredDevice, ResultAwaited, mismatch
from kernelblaster.harness.devices.job_records import (
    Job,
    JobKind,
    JobResult,
    JobsFile,
    RunJobs,
    read_results,
    write_jobs,
)
from kernelblaster.harness.devices.protocol import Measurement
from kernelblaster.harness.devices.registry import DEFERRED_SIMULATED, open_device
from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.gpus import GPUS, is_called
from kernelblaster.harness.jobs.run import run_jobs
from kernelblaster.harness.records.evaluations import DeviceIdentity, StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.harness.task.loading import load_task


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("tasks") / "scale.py"
    path.write_text(kernels.SCALE_TASK)
    return asyncio.run(load_task(path))


def write(folder: Path, *jobs: Job) -> Path:
    path = folder / "jobs.json"
    asked = RunJobs(jobs=tuple(job.id for job in jobs))
    write_jobs(path, JobsFile(runs={"run-1": asked}, jobs=jobs))
    return path


async def job_for(task: Task, source: str) -> Job:
    with pytest.raises(ResultAwaited) as awaited:
        await DeferredDevice("H200", "simulated").profile(task, source)
    return awaited.value.job


class Carried(DeferredDevice):
    """A deferred device whose jobs are carried to a simulated one, as files, and back."""

    def __init__(self, folder: Path) -> None:
        super().__init__("H200", "simulated")
        self._folder = folder

    async def verify(self, task: Task, source: str, sample: int = 0) -> StageResult:
        return (await self._carry(task, source)).verified

    async def profile(self, task: Task, source: str, sample: int = 0) -> Measurement:
        measured = (await self._carry(task, source)).measured
        assert measured is not None
        return measured

    async def confirm(self, task: Task, source: str, sample: int = 0) -> StageResult:
        return (await self._carry(task, source, "confirm")).verified

    async def time_fresh(self, task: Task, source: str) -> Measurement:
        measured = (await self._carry(task, source, "confirm")).measured
        assert measured is not None
        return measured

    async def _carry(self, task: Task, source: str, kind: JobKind = "evaluate") -> JobResult:
        job = (await job_for(task, source)).model_copy(update={"kind": kind})
        jobs = write(self._folder, job)
        results = self._folder / "results.json"
        await run_jobs(jobs, results, say=lambda line: None)
        (found,) = (result for result in read_results(results).results if result.id == job.id)
        return found


class TestConformance(DeviceConformance):
    """The suite that every device passes, through jobs and results on disk."""

    @pytest.fixture
    def device(self, tmp_path: Path) -> Carried:
        return Carried(tmp_path)


async def test_it_compiles_for_the_real_architecture_and_runs_nothing(task: Task) -> None:
    device = DeferredDevice("H200")
    assert (device.identity.kind, device.identity.arch) == ("deferred", "sm_90a")
    compiled = await device.compile(task, kernels.SCALE)
    assert compiled.build is not None and compiled.build.arch == "sm_90a"
    refused = await device.compile(task, kernels.WRONG["getenv"][0])
    assert refused.outcome is Outcome.FORBIDDEN
    for ask in (device.verify, device.profile):
        with pytest.raises(ResultAwaited) as awaited:
            await ask(task, kernels.SCALE)
        assert awaited.value.job.executor == "cuda"


@pytest.mark.parametrize(
    ("name", "outcome"), [("too many threads", Outcome.CRASHED), ("getenv", Outcome.FORBIDDEN)]
)
async def test_what_no_gpu_would_launch_never_travels(
    task: Task, name: str, outcome: Outcome
) -> None:
    found = await DeferredDevice("H200").verify(task, kernels.WRONG[name][0])
    assert found.outcome is outcome and found.reason


def test_measured_and_simulated_results_have_keys_of_their_own() -> None:
    measured, simulated = (open_device(k, "H200") for k in ("deferred", DEFERRED_SIMULATED))
    assert measured.identity != simulated.identity
    assert DeferredDevice("A100").identity.arch == "sm_80"


@pytest.mark.parametrize("gpu", ["", "GT 220"])
def test_the_gpu_must_be_named_and_known(gpu: str) -> None:
    with pytest.raises(UserError, match="H200"):
        open_device("deferred", gpu)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpu": "NVIDIA H200"}, ""),
        ({"gpu": "NVIDIA H200 NVL"}, ""),
        ({"gpu": "NVIDIA GH200 480GB"}, "GH200"),
        ({"gpu": "NVIDIA H100 80GB HBM3"}, "H100"),
        ({"gpu": "NVIDIA H200", "arch": "sm_90"}, "sm_90"),
        ({"gpu": "NVIDIA H200", "kind": "simulated"}, "simulated"),
        ({"gpu": "NVIDIA H200", "harness": "0"}, "harness"),
    ],
)
def test_who_may_answer(changes: dict[str, Any], words: str) -> None:
    asked = DeferredDevice("H200").identity
    device = DeviceIdentity(kind="cuda", gpu="NVIDIA H200", arch="sm_90a", toolchain="driver 580")
    reason = mismatch(asked, "cuda", device.model_copy(update=changes))
    assert bool(reason) == bool(words) and words in reason


async def test_a_slim_process_judges_as_the_device_itself(task: Task, tmp_path: Path) -> None:
    """No graph, no memory, no command line: and the verdicts are those of the simulated device."""
    sources = {
        "passed": kernels.SCALE,
        "wrong_answer": kernels.WRONG["wrong answer"][0],
        "forbidden": kernels.WRONG["getenv"][0],
        "compile_error": kernels.WRONG["does not compile"][0],
    }
    jobs = write(tmp_path, *[await job_for(task, source) for source in sources.values()])
    done = await asyncio.to_thread(run_slim, jobs, tmp_path / "results.json", "simulated")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 5
    found = read_results(tmp_path / "results.json").results
    assert [str(result.verified.outcome) for result in found] == list(sources)
    here = SimulatedDevice("H200")
    assert all(result.device == here.identity for result in found)
    measured = found[0].measured
    assert measured is not None and measured.timing is not None
    direct = await here.profile(task, kernels.SCALE)
    assert measured.timing == direct.timing and measured.profile == direct.profile
    assert "/" not in (found[0].verified.build.directory if found[0].verified.build else "")


def test_a_slim_process_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_text("{}")
    done = run_slim(tmp_path / "jobs.json", tmp_path / "results.json", "auto")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.startswith("kernelblaster: ") and done.stderr.count("\n") == 1


async def test_a_reference_that_fails_there_is_said_and_the_others_go_on(
    task: Task, tmp_path: Path
) -> None:
    """The reference of a job is code: it runs as any task's does, in its child process."""
    good = await job_for(task, kernels.WRONG["getenv"][0])
    text = kernels.SCALE_TASK.replace("return x * 2.0 + 1.0", "raise RuntimeError('broken')")
    bad_task = task.model_copy(
        update={"name": "broken", "source": text, "reference_sha256": "1" * 64}
    )
    bad = await job_for(bad_task, kernels.SCALE)
    summary = await run_jobs(write(tmp_path, bad, good), tmp_path / "r.json", say=lambda line: None)
    assert summary.ran == 1 and summary.outcomes == {"forbidden": 1}
    assert len(summary.unanswered) == 1
    assert "broken.py" in summary.unanswered[0] and "RuntimeError" in summary.unanswered[0]
    assert json.loads((tmp_path / "r.json").read_text())["format"] == "kernelblaster-results/1"


def test_an_interrupted_run_of_jobs_says_how_to_go_on(task: Task, tmp_path: Path) -> None:
    """SIGTERM, as a batch queue sends it, while a candidate loops: nothing is left behind."""
    job = asyncio.run(job_for(task, kernels.ENDLESS_HOST_LOOP))
    done = asyncio.run(job_for(task, kernels.WRONG["getenv"][0]))
    results = tmp_path / "results.json"
    process = subprocess.Popen(
        [sys.executable, "-c", SLIM, "run", str(write(tmp_path, done, job)), "-o", str(results)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert process.stdout is not None
    assert "forbidden" in process.stdout.readline()
    time.sleep(2.0)  # Well inside the loop, or still in its compilation: both must end.
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130 and "the same command goes on" in said
    assert "Traceback" not in said
    assert [result.id for result in read_results(results).results] == [done.id]


@pytest.mark.gpu
async def test_a_real_gpu_answers_what_a_machine_without_one_asks(
    task: Task, tmp_path: Path
) -> None:
    try:
        gpu = find_gpus()[0]
    except UserError as error:
        pytest.skip(str(error))
    name = next((name for name in GPUS if is_called(gpu.name, name)), None)
    if name is None:
        pytest.skip(f"{gpu.name} is none of the GPUs with a name")
    device = DeferredDevice(name)
    jobs = []
    for source in (kernels.SCALE, kernels.WRONG["wrong answer"][0], kernels.WRONG["getenv"][0]):
        with pytest.raises(ResultAwaited) as awaited:
            await device.profile(task, source)
        jobs.append(awaited.value.job)
    jobs.append(jobs[0].model_copy(update={"kind": "confirm"}))
    summary = await run_jobs(write(tmp_path, *jobs), tmp_path / "r.json", say=lambda line: None)
    assert not summary.unanswered
    assert summary.outcomes == {"passed": 2, "wrong_answer": 1, "forbidden": 1}
    for result in read_results(tmp_path / "r.json").results:
        assert not mismatch(device.identity, "cuda", result.device)
        if result.measured is not None:
            assert result.measured.timing is not None
            assert result.measured.timing.provenance is Provenance.EVENTS

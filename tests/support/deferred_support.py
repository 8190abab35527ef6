"""A deferred run on text: the graph, its stores and the files are real, kernels are lines of text.

`install` puts a deferred text device in the graph's place; `run_jobs_on_text` is the GPU host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import graph_support
from asked import Asked

from kernelblaster.graph.session import Session, Waiting
from kernelblaster.harness.devices.deferred import ResultAwaited
from kernelblaster.harness.devices.job_records import Job, JobKind, JobTask, read_results
from kernelblaster.harness.devices.protocol import Capability, Measurement
from kernelblaster.harness.jobs import run as job_run
from kernelblaster.harness.records.evaluations import DeviceIdentity, StageResult, evaluation_key
from kernelblaster.harness.records.identity import source_sha256
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.versions import harness_version
from kernelblaster.memory.run.exchange import export_jobs, import_results
from kernelblaster.nodes.records.result import RunResult


@dataclass(frozen=True)
class DeferredTextDevice(graph_support.TextDevice):
    """Compiles text here; everything else is awaited from a simulated (text) device."""

    @property
    def identity(self) -> DeviceIdentity:
        return DeviceIdentity(
            kind="deferred",
            gpu=self.gpu,
            arch="sm_90",
            toolchain="text here",
            harness=harness_version("simulated"),
        )

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.CONFIRM, Capability.FRESH})

    async def verify(self, task: Task, source: str, sample: int = 0) -> StageResult:
        raise ResultAwaited(self._job(task, source))

    async def profile(self, task: Task, source: str, sample: int = 0) -> Measurement:
        raise ResultAwaited(self._job(task, source))

    async def confirm(self, task: Task, source: str, sample: int = 0) -> StageResult:
        raise ResultAwaited(self._job(task, source, "confirm"))

    async def time_fresh(self, task: Task, source: str) -> Measurement:
        raise ResultAwaited(self._job(task, source, "confirm"))

    def _job(self, task: Task, source: str, kind: JobKind = "evaluate") -> Job:
        return Job(
            kind=kind,
            key=evaluation_key(source_sha256(source), task.id, self.identity),
            task=JobTask.of(task),
            source=source,
            device=self.identity,
            executor="simulated",
        )


def install(patch: Callable[[str, Any], Any]) -> None:
    """Put the deferred text device, its task and its rewrites in place."""
    graph_support.install(patch)
    for module in ("tools.workspace", "graph.session", "nodes.run.beginning.begin"):
        patch(f"kernelblaster.{module}.open_device", lambda kind, gpu: DeferredTextDevice("H100"))

    async def load(path: Path, *_: Any) -> Task:
        return graph_support.text_task(path.stem)

    patch("kernelblaster.harness.jobs.run.load_task", load)


def open_text(kind: str, gpu: str, index: int) -> graph_support.TextDevice:
    """The GPU host's device."""
    return graph_support.TextDevice("H100")


def run_jobs_on_text(
    jobs: Path, results: Path, opened: job_run.Open = open_text, **options: Any
) -> job_run.JobsSummary:
    """Be the GPU host."""
    options.setdefault("say", lambda line: None)
    return asyncio.run(job_run.run_jobs(jobs, results, opened=opened, **options))


def advance(directory: Path, request: Asked | None = None) -> RunResult | int:
    """Start a run, or go on with it; return its result, or how many jobs it waits for."""
    session = request.session(directory) if request else Session.open(directory)
    try:
        return asyncio.run(session.run())
    except Waiting as waiting:
        return waiting.jobs
    finally:
        session.close()


def finish(directory: Path, request: Asked, most_rounds: int = 40) -> RunResult:
    """Start a run and carry files to and fro until it ends."""
    ended = advance(directory, request)
    for number in range(most_rounds):
        if isinstance(ended, RunResult):
            return ended
        exchange(directory, f"{number}")
        ended = advance(directory)
    raise AssertionError(f"not finished after {most_rounds} rounds")


def exchange(directory: Path, name: str) -> Path:
    """Export, run and import one round; return the results file."""
    jobs, results = directory.parent / f"jobs{name}.json", directory.parent / f"results{name}.json"
    export_jobs([directory], jobs)
    run_jobs_on_text(jobs, results)
    import_results(directory, read_results(results), results)
    return results

"""Run the jobs of a file on this machine: every job through every gate, each result kept."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..devices.deferred import mismatch
from ..devices.gates import Gates
from ..devices.job_records import (
    Executor,
    Job,
    JobResult,
    JobsFile,
    ResultsFile,
    counted,
    merged,
    read_jobs,
    read_results,
    write_results,
)
from ..devices.protocol import Device
from ..devices.registry import open_device
from ..errors import UserError
from ..files import require_replaceable
from ..process.scratch import scratch_folder
from ..records.evaluations import DeviceIdentity, StageResult
from ..records.outcomes import outcome_in_words
from ..records.record import Record
from ..records.tasks import Task
from ..task.loading import load_task

KINDS = ("auto", "cuda", "simulated")

Open = Callable[[str, str, int], Device]
Say = Callable[[str], None]


class JobsSummary(Record):
    """What `jobs run` came to."""

    results: str
    """Path of the results file."""
    ran: int
    """Jobs run now."""
    known: int
    """Jobs whose results were there already."""
    outcomes: dict[str, int]
    """Jobs of the file by outcome."""
    unanswered: tuple[str, ...] = ()
    """Why jobs have no result, each reason once with their number."""


async def run_jobs(
    jobs: Path,
    results: Path,
    device: str = "auto",
    gpus: Sequence[int] = (0,),
    say: Say = print,
    opened: Open = open_device,
) -> JobsSummary:
    """Run the jobs of a file that `results` does not answer yet; write it after each.

    Args:
        jobs: the jobs file.
        results: the results file; one that is there is gone on with.
        device: which jobs to run: those that ask for `cuda`, for `simulated`, or all (`auto`).
        gpus: which of the visible GPUs work, one job at a time each.
        say: told one line for each job.
        opened: opens a device of a kind for a GPU name and number.

    Raises:
        UserError: a file or a device cannot be used. A job that cannot be answered here stops no
            other: see `JobsSummary.unanswered`.
    """
    if device not in KINDS:
        raise UserError(f"unknown device {device!r}: choose one of {', '.join(KINDS)}")
    if not gpus or len(set(gpus)) != len(gpus):
        raise UserError("--gpus: name each GPU once, for example 0,1")
    asked = await asyncio.to_thread(read_jobs, jobs)
    await asyncio.to_thread(require_replaceable, results)
    with _held(results):
        known = await asyncio.to_thread(_known, results)
        work = _Work(asked, known, results, say)
        with scratch_folder("jobs") as scratch:
            await work.run(device, gpus, opened, scratch)
    return work.summary()


class _Work:
    """The jobs that are left, and the results so far."""

    def __init__(self, asked: JobsFile, known: ResultsFile, path: Path, say: Say) -> None:
        self._asked = asked
        self._path = path
        self._say = say
        self._runs = merged(known.runs, asked.runs)
        self._results = {result.id: result for result in known.results}
        self._left = {job.id: job for job in asked.jobs if job.id not in self._results}
        self._total = len(self._left)
        self._ran = 0
        self._unanswered: dict[str, str] = {}
        """Reason by job."""
        self._tasks: dict[str, Task] = {}
        self._writing = asyncio.Lock()
        self._measured_by = {
            run: found.measured_by for run, found in self._runs.items() if found.measured_by
        }
        for run in self._runs:
            for result in known.of_run(run):
                self._measured_by.setdefault(run, result.device)

    async def run(self, kind: str, gpus: Sequence[int], opened: Open, scratch: Path) -> None:
        """Run what is left on all lanes, and note why anything stays without a result."""
        lanes = await asyncio.to_thread(self._lanes, kind, gpus, opened)
        try:
            await self._run(lanes, scratch)
        finally:
            for _, device in lanes:
                await asyncio.to_thread(device.close)

    async def _run(self, lanes: Sequence[tuple[Executor, Device]], scratch: Path) -> None:
        reasons = {job.id: self._obstacle(job, lanes) for job in self._left.values()}
        self._unanswered |= {identity: reason for identity, reason in reasons.items() if reason}
        await self._load_tasks(scratch)
        await self._write()  # Also where nothing is left: other runs may ask for the same jobs.
        try:
            async with asyncio.TaskGroup() as group:
                for _, device in lanes:
                    group.create_task(self._lane(device))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        for job in self._left.values():  # Shared by runs that began on different machines.
            self._unanswered.setdefault(job.id, self._obstacle(job, lanes))

    def summary(self) -> JobsSummary:
        """Return what the work came to."""
        outcomes: dict[str, int] = {}
        for job in self._asked.jobs:
            if job.id in self._results:
                outcome = str(self._results[job.id].last.outcome)
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
        reasons = list(self._unanswered.values())
        return JobsSummary(
            results=str(self._path),
            ran=self._ran,
            known=len(self._asked.jobs) - self._total,
            outcomes=outcomes,
            unanswered=tuple(
                f"{counted(reasons.count(reason))}: {reason}" for reason in dict.fromkeys(reasons)
            ),
        )

    def _lanes(
        self, kind: str, gpus: Sequence[int], opened: Open
    ) -> list[tuple[Executor, Device]]:
        """Open the devices that the jobs ask for; each works on one job at a time."""
        lanes: list[tuple[Executor, Device]] = []
        wanted = {(job.executor, job.device.gpu) for job in self._left.values()}
        if any(executor == "cuda" for executor, _ in wanted) and kind != "simulated":
            lanes += [("cuda", opened("cuda", "", index)) for index in gpus]
        if kind != "cuda":
            simulated = sorted(gpu for executor, gpu in wanted if executor == "simulated")
            lanes += [("simulated", opened("simulated", gpu, 0)) for gpu in simulated]
        return lanes

    def _obstacle(self, job: Job, lanes: Sequence[tuple[Executor, Device]]) -> str:
        """Return why no lane can take a job, empty where one can."""
        reasons = [self._refusal(job, device.identity) for _, device in lanes]
        if "" in reasons:
            return ""
        fitting = [
            reason
            for reason, (executor, _) in zip(reasons, lanes, strict=True)
            if executor == job.executor
        ]
        if fitting:
            return fitting[0]
        return f"they ask for results from {job.executor}, which --device leaves out"

    def _refusal(self, job: Job, device: DeviceIdentity) -> str:
        """Return why a device may not answer a job, empty where it may."""
        wrong = mismatch(job.device, job.executor, device)
        if wrong:
            return wrong
        for run, found in self._asked.runs.items():
            first = self._measured_by.get(run)
            if job.id in found.jobs and first is not None and first != device:
                return (
                    f"run {run} has results of {first}, and this is {device}: "
                    "all results of a run come from one kind of machine"
                )
        return ""

    async def _load_tasks(self, scratch: Path) -> None:
        """Load each task once; a task that fails here takes its own jobs out, no others."""
        failures: dict[str, str] = {}
        for job in list(self._left.values()):
            identity = job.task.id
            if job.id in self._unanswered:
                continue
            if identity not in self._tasks and identity not in failures:
                try:
                    self._tasks[identity] = await load_job_task(job, scratch)
                except UserError as error:
                    failures[identity] = str(error)
            if identity in failures:
                self._unanswered[job.id] = failures[identity]

    async def _lane(self, device: Device) -> None:
        """Take jobs that this device may answer until there are none."""
        while (job := self._next(device.identity)) is not None:
            try:
                result = await answer(device, self._tasks[job.task.id], job)
            except UserError as error:
                self._unanswered[job.id] = str(error)
                self._say(f"{job.task.name}: no result: {error}")
                continue
            self._results[job.id] = result
            await self._write()
            self._ran += 1
            self._say(f"{self._ran} of {self._total}  {job.task.name}, {job.kind}: {_line(result)}")

    def _next(self, device: DeviceIdentity) -> Job | None:
        """Take the first job left that the device may answer; its runs are then the device's."""
        for job in self._left.values():
            if job.id in self._unanswered:
                continue
            refused = self._refusal(job, device)
            if not refused:
                del self._left[job.id]
                for run, found in self._asked.runs.items():
                    if job.id in found.jobs:
                        self._measured_by[run] = device
                return job
        return None

    async def _write(self) -> None:
        async with self._writing:
            body = ResultsFile(runs=self._runs, results=tuple(self._results.values()))
            await asyncio.to_thread(write_results, self._path, body)


async def answer(device: Device, task: Task, job: Job) -> JobResult:
    """Put one job through every gate of a device. Raises UserError for faults of the machine."""
    gates = Gates(device)
    passage = await (gates.confirm if job.kind == "confirm" else gates.run)(task, job.source)
    measured = passage.measured
    if measured is not None:
        measured = measured.model_copy(update={"stage": _without_folder(measured.stage)})
    return JobResult(
        kind=job.kind,
        key=job.key,
        device=device.identity,
        verified=_without_folder(passage.verified),
        measured=measured,
    )


async def load_job_task(job: Job, scratch: Path) -> Task:
    """Load a job's task from the text of its reference, as any task is loaded.

    The reference runs in its child process, with limits and without this process's environment.
    Raises UserError where it fails, or is another task here than where the job comes from.
    """
    folder = scratch / job.task.id[:16]
    path = folder / f"{job.task.name}.py"

    def lay_out() -> None:
        folder.mkdir(exist_ok=True)
        path.write_text(job.task.source, encoding="utf-8", newline="")

    await asyncio.to_thread(lay_out)
    try:
        task = await load_task(path, job.task.dimensions, job.task.reading)
    except UserError as error:
        raise UserError(str(error).replace(str(path), path.name)) from error
    if task.id != job.task.id:
        raise UserError(
            f"{path.name} is another task here than where the job comes from: are the versions "
            "of PyTorch the same?"
        )
    return task.model_copy(update={"path": path.name})


def _line(result: JobResult) -> str:
    if result.timing:
        return f"passed, {result.timing.microseconds:.2f} us ({result.timing.provenance})"
    return outcome_in_words(result.last.outcome, result.last.reason)


def _without_folder(stage: StageResult) -> StageResult:
    """Leave out where the build lies: on the run's machine there is nothing."""
    if stage.build is None:
        return stage
    return stage.model_copy(update={"build": stage.build.model_copy(update={"directory": ""})})


def _known(path: Path) -> ResultsFile:
    return read_results(path) if path.exists() else ResultsFile(runs={}, results=())


@contextmanager
def _held(results: Path) -> Iterator[None]:
    """Hold a results file: two processes with one `-o` would each lose the other's results."""
    lock = results.with_name(f".{results.name}.lock")
    try:
        results.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise UserError(f"cannot write {results}: {error.strerror}; choose another -o") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"{results} is being written by another process; wait for it, or choose another -o"
            ) from error
        yield
    finally:
        os.close(descriptor)

"""What travels between a run and the host that has the GPU: jobs one way, results the other.

Both files are JSON: {"format", "harness", "sha256", "body"}, where sha256 is that of the body in
canonical form. The sum tells a damaged file from a whole one; it says nothing of who wrote it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError, field_validator, model_validator

from ..errors import UserError, unwritten
from ..files import read_json, write_atomically
from ..records.evaluations import DeviceIdentity, evaluation_key
from ..records.identity import sha256_of_json, source_sha256
from ..records.outcomes import Outcome
from ..records.readings import AS_WRITTEN, Reading
from ..records.record import Record
from ..records.tasks import Task
from ..records.timings import Provenance
from ..records.versions import JUDGE_VERSION
from .gates import Passage

JOBS_FORMAT = "kernelblaster-jobs/1"
RESULTS_FORMAT = "kernelblaster-results/1"
LARGEST_FILE_BYTES = 1 << 30

Executor = Literal["cuda", "simulated"]
"""The kind of device that may answer a job: numbers of the other kind are never let in."""

JobKind = Literal["evaluate", "confirm"]
"""`evaluate`: verify, and profile what passes. `confirm`: both once more in fresh processes."""

Document = TypeVar("Document", bound=Record)


class JobTask(Record):
    """A task as another host can load it: the text of its reference, not the path."""

    id: str
    """Identity the task must have when it is loaded there."""
    name: str
    """File stem of the reference."""
    source: str
    """Text of the reference."""
    dimensions: dict[str, int]
    """Dimensions of the verify variant."""
    reading: Reading = AS_WRITTEN
    """How the reference is read."""

    @field_validator("name")
    @classmethod
    def _is_no_path(cls, name: str) -> str:
        if not re.fullmatch(r"\w[\w .+-]{0,199}", name):
            raise ValueError("not a plain file name")
        return name

    @classmethod
    def of(cls, task: Task) -> JobTask:
        """Return what another host needs to load a task to the same identity."""
        # A reference may hold integers that are no sizes (an axis of -1): those are never changed.
        dimensions = {name: size for name, size in task.verify.dimensions.items() if size > 0}
        name = re.sub(r"[^\w .+-]", "_", task.name)[:200]
        name = name if re.match(r"\w", name) else f"task{name}"[:200]
        return cls(id=task.id, name=name, source=task.source, dimensions=dimensions,
                   reading=task.reading)  # fmt: skip


class Job(Record):
    """One candidate to be verified and measured elsewhere."""

    kind: JobKind
    key: str
    """Key of the evaluation: source, task, and the device as the run knows it."""
    task: JobTask
    source: str
    """Text of the candidate."""
    device: DeviceIdentity
    """The run's own device: which GPU and architecture are asked for."""
    executor: Executor

    @property
    def id(self) -> str:
        """Identity of the job: equal jobs of several runs are run once."""
        return f"{self.kind}-{self.key}"

    @model_validator(mode="after")
    def _has_its_own_key(self) -> Job:
        if self.key != evaluation_key(source_sha256(self.source), self.task.id, self.device):
            raise ValueError("the key is not that of this source, task and device")
        return self


class JobResult(Passage):
    """What came of one job, and on what it ran."""

    kind: JobKind
    key: str
    device: DeviceIdentity
    """The device that verified and measured."""

    @property
    def id(self) -> str:
        """Identity of the job that this answers."""
        return f"{self.kind}-{self.key}"

    @model_validator(mode="after")
    def _numbers_agree_with_the_device(self) -> JobResult:
        passed = self.verified.outcome is Outcome.PASSED
        if passed != (self.measured is not None):
            raise ValueError("a measurement belongs to a passed verification, and to no other")
        if self.measured is None:
            return self
        timing, profile = self.measured.timing, self.measured.profile
        whole = timing is not None and profile is not None
        if whole != (self.measured.stage.outcome is Outcome.PASSED):
            raise ValueError("a timing and a profile belong to a passed stage, and to no other")
        if timing is not None and profile is not None:
            simulated = self.device.kind == "simulated"
            for provenance in (timing.provenance, profile.provenance):
                if (provenance is Provenance.SIMULATED) != simulated:
                    raise ValueError(f"{provenance} numbers from a {self.device.kind} device")
        return self


class RunJobs(Record):
    """What one run waits for."""

    jobs: tuple[str, ...]
    """Ids of its jobs."""
    measured_by: DeviceIdentity | None = None
    """The device that gave the run's earlier results: the others must come from its like."""


class JobsFile(Record):
    """The body of a jobs file."""

    runs: dict[str, RunJobs]
    """By run id."""
    jobs: tuple[Job, ...]

    @model_validator(mode="after")
    def _lists_what_it_holds(self) -> JobsFile:
        listed = {identity for run in self.runs.values() for identity in run.jobs}
        if listed != {job.id for job in self.jobs}:
            raise ValueError("the runs list other jobs than the file holds")
        return self


class ResultsFile(Record):
    """The body of a results file."""

    runs: dict[str, RunJobs]
    """As in the jobs files that were answered, by run id."""
    results: tuple[JobResult, ...]

    def of_run(self, run: str) -> list[JobResult]:
        """Return the results of the jobs that a run asked for."""
        asked = set(self.runs[run].jobs) if run in self.runs else set()
        return [result for result in self.results if result.id in asked]


def read_jobs(path: Path) -> JobsFile:
    """Read a jobs file. Raises UserError where it is missing, damaged or of another version."""
    return _read(path, JOBS_FORMAT, JobsFile, "export the jobs again: kernelblaster jobs export")


def read_results(path: Path) -> ResultsFile:
    """Read a results file. Raises UserError as `read_jobs` does."""
    return _read(path, RESULTS_FORMAT, ResultsFile, "fetch it again from the GPU host")


def parse_results(document: Any, origin: str) -> ResultsFile:
    """Return what the JSON of a results file holds. Raises UserError as `read_results` does."""
    return _body(document, origin, RESULTS_FORMAT, ResultsFile, "fetch it again from the GPU host")


def write_jobs(path: Path, body: JobsFile) -> None:
    """Write a jobs file whole or not at all. Raises UserError where it cannot be written."""
    _write(path, JOBS_FORMAT, body)


def write_results(path: Path, body: ResultsFile) -> None:
    """Write a results file whole or not at all. Raises UserError where it cannot be written."""
    _write(path, RESULTS_FORMAT, body)


def merged(left: Mapping[str, RunJobs], right: Mapping[str, RunJobs]) -> dict[str, RunJobs]:
    """Return the jobs of all runs of both, each once; `right` knows better who measured."""
    found = dict(left)
    for run, asked in right.items():
        before = found.get(run, RunJobs(jobs=()))
        found[run] = RunJobs(
            jobs=tuple(dict.fromkeys((*before.jobs, *asked.jobs))),
            measured_by=asked.measured_by or before.measured_by,
        )
    return found


def counted(count: int) -> str:
    """Return a number of jobs in words."""
    return "1 job" if count == 1 else f"{count} jobs"


def another_machine(first: DeviceIdentity | None, device: DeviceIdentity) -> str:
    """Return why a run that has results of one device takes none of another; empty where equal."""
    if first is None or first == device:
        return ""
    return (
        f"these results come from {device}, the run's earlier ones from {first}: run its jobs "
        "there, or start a new run"
    )


def _read(path: Path, form: str, kind: type[Document], remedy: str) -> Document:
    return _body(_parse(path, remedy), str(path), form, kind, remedy)


def _body(
    document: Any, origin: str, form: str, kind: type[Document], remedy: str
) -> Document:
    """Return the body of a document that is whole and of this version; `origin` is for messages."""
    found = document.get("format") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(found, str):
        raise UserError(f"{origin} is no file of this program: it does not say {form}")
    if found != form:
        raise UserError(f"{origin} has format {found!r}, and {form!r} is needed: {remedy}")
    if document.get("harness") != JUDGE_VERSION:
        # What the device's own version is stands on every job and result: see `mismatch`.
        raise UserError(
            f"{origin} was written by harness version {document.get('harness')!r}, this is "
            f"{JUDGE_VERSION!r}: install the same version of kernelblaster on both machines"
        )
    body = document.get("body")
    if document.get("sha256") != sha256_of_json(body):
        raise UserError(f"{origin} was changed or damaged (its sha256 does not match): {remedy}")
    try:
        return kind.model_validate_json(json.dumps(body))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        message = " ".join(str(first["msg"]).split())
        raise UserError(f"{origin} is damaged: {where}: {message}: {remedy}") from error


def _parse(path: Path, remedy: str) -> Any:
    try:
        return read_json(path, "a file of jobs or results", remedy, LARGEST_FILE_BYTES)
    except FileNotFoundError as error:
        raise UserError(f"no such file: {path}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


def _write(path: Path, form: str, body: Record) -> None:
    value = body.model_dump(mode="json")
    document = {
        "format": form,
        "harness": JUDGE_VERSION,
        "sha256": sha256_of_json(value),
        "body": value,
    }
    try:
        write_atomically(path, (json.dumps(document) + "\n").encode(), handed_on=True)
    except OSError as error:
        raise UserError(f"{unwritten(path, error)}, or another with -o") from error

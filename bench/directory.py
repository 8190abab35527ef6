"""A bench's directory: what lies where, made whole, held by one process, read by anybody.

    suite.json                        the lock: versions, settings, tasks, variants, seeds
    tasks/NAME.py                     each task's text
    base/                             the knowledge base that was begun with, if one was named
    knowledge/FOLDER/seed-S[/NAME]/   knowledge bases
    runs/FOLDER/seed-S/NAME/          run directories, as `optimize` makes them
    outcomes/FOLDER/seed-S/NAME.json  one file for each run that is over
    results.json, .md, .csv           tables of them
    rerun.json                        what measuring the winners again came to
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import ValidationError

from ..harness.errors import UserError, told_of, unwritten
from ..harness.files import read_json, read_text, write_atomically
from ..harness.records.identity import sha256_of
from ..harness.suites.records import SuiteTask
from ..memory.locations import default_runs_directory
from ..nodes.common.policies import reads_knowledge
from .records import SUITE_FORMAT, Ended, PlannedRun, SuiteLock

SUITE_FILE, RERUN_FILE = "suite.json", "rerun.json"
_HELD = "suite.lock"
_BASE = "base"
_COPYING = ".copying-"
"""How the name of a knowledge base begins that is being copied."""


def is_suite(directory: Path) -> bool:
    """Say whether a bench was begun in a directory."""
    return (directory / SUITE_FILE).is_file()


def new_directory(suite: str) -> Path:
    """Return the first free RUNS/bench-SUITE-N; not created. N counts from 1."""
    root, number = default_runs_directory(), 1
    stem = re.sub(r"[^A-Za-z0-9_.-]", "-", suite) or "suite"
    while (root / f"bench-{stem}-{number}").exists():
        number += 1
    return root / f"bench-{stem}-{number}"


def begin(directory: Path, lock: SuiteLock, tasks: tuple[SuiteTask, ...]) -> None:
    """Write the tasks and, last, the lock; a directory without a lock is no bench.

    Raises:
        UserError: the directory holds something else, or cannot be written.
    """
    try:
        found = {each.name for each in directory.iterdir()} if directory.exists() else set()
        if found - {"tasks", "stages", _BASE, _HELD}:  # `stages` may be that of another bench.
            raise UserError(f"{directory} is not empty; choose another with --out")
        for task in tasks:
            write_atomically(task_path(directory, task.name), task.source.encode())
        if lock.knowledge_from:  # Whatever becomes of it, all variants begin with the same.
            shutil.rmtree(directory / _BASE, ignore_errors=True)
            shutil.copytree(lock.knowledge_from, directory / _BASE)
        text = lock.model_dump_json(indent=2) + "\n"
        write_atomically(directory / SUITE_FILE, text.encode())
    except shutil.Error as error:
        raise UserError(f"cannot copy {lock.knowledge_from} to {directory}: {error}") from error
    except OSError as error:
        raise UserError(unwritten(directory, error)) from error


def read_suite(directory: Path) -> SuiteLock:
    """Return the lock of a bench.

    Raises:
        UserError: there is none, it is damaged, of another version, or a task was changed.
    """
    path = directory / SUITE_FILE
    try:
        said = read_json(path, "a bench's lock", "start a new bench")
        if not isinstance(said, dict) or said.get("format") != SUITE_FORMAT:
            raise UserError(f"{path} is no {SUITE_FORMAT}; go on with the version that began it")
        lock = SuiteLock.model_validate(said)
    except ValidationError as error:
        raise UserError(f"{path} is damaged: {told_of(error)}; start a new bench") from error
    except OSError as error:
        raise UserError(f"{directory} is no bench: there is no {SUITE_FILE}") from error
    for task in lock.tasks:
        text = read_text(task_path(directory, task.name), "a task of a bench")
        if sha256_of(text) != task.sha256:
            raise UserError(
                f"{task_path(directory, task.name)} has changed since the bench began; bring it "
                "back, or start a new bench"
            )
    return lock


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep other processes from running the bench meanwhile.

    Raises:
        UserError: another does, or it cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / _HELD, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UserError(unwritten(directory, error)) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"the bench in {directory} is run by another process") from None
        for left in (directory / "knowledge").glob(f"**/{_COPYING}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(descriptor)


def task_path(directory: Path, task: str) -> Path:
    """Return where a task's text lies."""
    return directory / "tasks" / f"{task}.py"


def run_path(directory: Path, run: PlannedRun) -> Path:
    """Return the directory of a run."""
    return directory / "runs" / run.place


def ended_path(directory: Path, run: PlannedRun) -> Path:
    """Return where it is written what became of a run."""
    return directory / "outcomes" / f"{run.place}.json"


def stages_path(directory: Path) -> Path:
    """Return where the runs of a bench share what they find out about kernels."""
    return directory / "stages"


def shares_knowledge(lock: SuiteLock, run: PlannedRun) -> bool:
    """Say whether a run has its knowledge base with the other tasks of its variant and seed."""
    return lock.knowledge == "shared" and reads_knowledge(lock.context_of(run))


def adds_knowledge(lock: SuiteLock, run: PlannedRun) -> bool:
    """Say whether a run leaves something to the runs that share its knowledge base."""
    return shares_knowledge(lock, run) and lock.context_of(run).memory == "live"


def prepare_knowledge(directory: Path, lock: SuiteLock, run: PlannedRun) -> Path:
    """Return a run's knowledge base, copied from the one that the bench begins with.

    Raises:
        UserError: it cannot be copied.
    """
    place = directory / "knowledge" / (run.chain if shares_knowledge(lock, run) else run.place)
    if lock.knowledge_from and not place.exists() and reads_knowledge(lock.context_of(run)):
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=place.parent, prefix=_COPYING) as beside:
                made = Path(beside) / place.name
                kept = directory / _BASE  # A bench of an earlier version has none.
                shutil.copytree(kept if kept.is_dir() else lock.knowledge_from, made)
                made.rename(place)
        except (OSError, shutil.Error) as error:
            if not place.exists():  # Else another run of these has just made it.
                raise UserError(f"cannot copy {lock.knowledge_from} to {place}: {error}") from error
    return place


def write_ended(directory: Path, run: PlannedRun, ended: Ended) -> None:
    """Write down what became of a run."""
    text = ended.model_dump_json(indent=2) + "\n"
    try:
        write_atomically(ended_path(directory, run), text.encode())
    except OSError as error:
        raise UserError(unwritten(directory, error)) from error


def read_ended(directory: Path, run: PlannedRun) -> Ended | None:
    """Return what became of a run; None while it is not over.

    Raises:
        UserError: the file is damaged.
    """
    path = ended_path(directory, run)
    remedy = "remove the file, and the run is looked at again"
    try:
        return Ended.model_validate(read_json(path, "the end of a run", remedy))
    except ValidationError as error:
        raise UserError(f"{path} is damaged: {told_of(error)}; {remedy}") from error
    except OSError:
        return None


def read_outcomes(directory: Path, lock: SuiteLock) -> list[tuple[PlannedRun, Ended]]:
    """Return what became of all runs that are over, in the order of the plan."""
    found = ((run, read_ended(directory, run)) for run in lock.runs)
    return [(run, ended) for run, ended in found if ended is not None]


def forget_failed(directory: Path, lock: SuiteLock) -> int:
    """Have the runs that failed tried again; return how many those are."""
    failed = [run for run, ended in read_outcomes(directory, lock)
              if ended.outcome.outcome == "failed"]  # fmt: skip
    for run in failed:
        ended_path(directory, run).unlink(missing_ok=True)
    return len(failed)

"""The case at full dimensions: its inputs for the candidate, PyTorch's answers apart from them."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from ..build.cache import cache_root, new_entry
from ..errors import UserError
from ..process.children import in_background, result_of
from ..process.scratch import scratch_folder
from ..records.record import Record
from ..records.tasks import Task
from .loading import ReferenceFails, full_case_directories, run_reference

FULL_CASE_BYTES = 8 << 30
"""Largest total of all tensors at full dimensions for which PyTorch's answer is kept."""

FRESH_SECONDS = 60.0
"""Longest that PyTorch may take for a case of which a confirmation gets one of its own."""

LEAST_MEMORY = 6
"""Times the tensors' size that drawing inputs and answering them takes, at the least."""


class RowTolerance(Record):
    """Largest accepted difference where rows of a tensor are of several kinds, which take turns."""

    absolute: tuple[float, ...] = Field(min_length=1)
    """Of each kind."""
    relative: tuple[float, ...] = Field(min_length=1)
    """Likewise."""
    row: int = Field(ge=1)
    """Elements of a row that follow each other."""
    rows: int = Field(0, ge=0)
    """After so many the first begins again; 0: there are as many as the tensor has room for."""
    step: float = 0.0
    least_step: float = 0.0
    share: float = 0.0
    """As a `Tolerance`'s."""


class FullCase(Record):
    """One case at full dimensions. A candidate's process is told of `inputs` only."""

    inputs: str
    """Folder with NAME.bin of each input, parameter and buffer of the full variant."""
    answers: str
    """Folder with out<k>.bin: PyTorch's answers."""
    tolerances: tuple[RowTolerance | None, ...]
    """Of each output; None for one that PyTorch itself does not meet: it is not compared."""
    rows: tuple[str, ...]
    """What rows of the inputs hold, in turns; one where all are as get_inputs() gives them."""
    exact: bool
    """Whether the tolerances have room for PyTorch's own error, which takes long to find."""
    secret: int = 0
    """What it was drawn from; 0 for the case that every candidate is profiled on."""
    seconds: float = 0.0
    """What making it took."""


class NoFullCase(Record):
    """There is no answer at full dimensions: nothing can be compared there."""

    reason: str


def begin_full_case(task: Task) -> None:
    """Have the case at full dimensions made in the background, where it is not there yet.

    What is under way ends with this process' main thread.
    """
    _cases_of(os.getpid()).begin(task)


def prepare_full_case_now(task: Task) -> FullCase | NoFullCase:
    """Return the case at full dimensions, or why there is none.

    There is none where the tensors are larger than FULL_CASE_BYTES together, where memory or disk
    have no room for it now, or where PyTorch fails at these dimensions: that is remembered.
    Raises UserError where it cannot be kept, Cancelled where the caller of `off_loop` was.
    """
    cases = _cases_of(os.getpid())
    return cases.wait(task) or _make(task)


@contextlib.contextmanager
def secret_full_case(task: Task, secret: int) -> Iterator[FullCase | NoFullCase]:
    """Give a case at full dimensions drawn from a number that nobody knew; removed afterwards.

    Where there is none, or making the usual one took longer than FRESH_SECONDS, why not. Raises
    UserError as above.
    """
    usual = prepare_full_case_now(task)
    if isinstance(usual, NoFullCase):
        yield usual
        return
    if usual.seconds > FRESH_SECONDS:
        words = f"PyTorch takes {usual.seconds:.0f} s for one, over the {FRESH_SECONDS:.0f} allowed"
        yield NoFullCase(reason=words)
        return
    with scratch_folder("full", cache_root()) as folder:
        yield _made(task, folder / "inputs", folder / "answers", secret)


def exact_full_case_now(task: Task, case: FullCase) -> FullCase | NoFullCase:
    """Return the case with room in its tolerances for PyTorch's own error, found when first asked.

    They are no narrower than before: what has passed passes. Or why that error cannot be found
    now: then nothing can be said of what differs. Raises Cancelled as above.
    """
    if case.exact:
        return case
    inputs, answers = Path(case.inputs), Path(case.answers)
    with _cases_of(os.getpid()).widening:
        described = _full_case(task, inputs, answers)
        if described and not described.get("exact"):
            try:
                run_reference(
                    Path(task.path), task.source, {}, task.full.dimensions, inputs, answers,
                    exact=True, variation=task.variation, secret=case.secret, reading=task.reading,
                    seconds=task.reference_seconds,
                )  # fmt: skip
            except UserError as error:
                return NoFullCase(reason=f"PyTorch fails in double precision: {error}")
            described = _full_case(task, inputs, answers)
    if described is None or not described.get("exact"):
        return NoFullCase(reason="the files of the case are gone")
    return case.model_copy(update={"tolerances": tuple(described["tolerances"]), "exact": True})


class _Cases:
    """The cases that are being made, by the folder of their answers."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self.widening = threading.Lock()
        """Held while one answers in double precision: two would take twice the memory."""
        self._under_way: dict[Path, Future[FullCase | NoFullCase]] = {}

    def begin(self, task: Task) -> None:
        inputs, answers = full_case_directories(task)
        with self._mutex:
            if answers in self._under_way or _full_case(task, inputs, answers):
                return
            self._under_way[answers] = in_background(partial(self._make, task, answers))

    def wait(self, task: Task) -> FullCase | NoFullCase | None:
        """Return what was begun, once it is there; None where nothing was."""
        with self._mutex:
            future = self._under_way.get(full_case_directories(task)[1])
        return None if future is None else result_of(future)

    def _make(self, task: Task, answers: Path) -> FullCase | NoFullCase:
        try:
            return _make(task)
        finally:
            with self._mutex:
                del self._under_way[answers]


@functools.cache
def _cases_of(process: int) -> _Cases:
    """Return the cases under way in this process, whose number is given: a fork has none."""
    return _Cases()


def _make(task: Task) -> FullCase | NoFullCase:
    return _made(task, *full_case_directories(task))


def _made(
    task: Task, inputs: Path, answers: Path, secret: int = 0
) -> FullCase | NoFullCase:
    total = sum(tensor.nbytes for tensor in task.full.tensors)
    if total > FULL_CASE_BYTES:
        gib, most = total / 2**30, FULL_CASE_BYTES / 2**30
        return NoFullCase(reason=f"the tensors have {gib:.1f} GiB, over the limit of {most:.0f}")
    described = _full_case(task, inputs, answers)
    if described is None:
        for folder in (inputs, answers):
            shutil.rmtree(folder, ignore_errors=True)
        if no_room := _no_room(total):
            return NoFullCase(reason=no_room)
        try:
            _write(task, inputs, answers, secret)
        except _NotNow as error:
            return NoFullCase(reason=f"PyTorch's answer cannot be had now: {error}")
        described = _full_case(task, inputs, answers) or {"failure": "incomplete files"}
    if "failure" in described:
        return NoFullCase(reason=f"PyTorch fails at these dimensions: {described['failure']}")
    return FullCase(
        inputs=str(inputs), answers=str(answers), tolerances=tuple(described["tolerances"]),
        rows=tuple(described["rows"]), exact=described["exact"], secret=secret,
        seconds=described["seconds"],
    )  # fmt: skip


class _NotNow(Exception):
    """No fault of the reference: it may be there the next time."""


def _write(task: Task, inputs: Path, answers: Path, secret: int) -> None:
    """Make the case, or note that the reference fails. Raises _NotNow, UserError."""
    with new_entry(answers) as new_answers, new_entry(inputs) as new_inputs:
        try:
            run_reference(
                Path(task.path), task.source, {}, task.full.dimensions, new_inputs, new_answers,
                outputs=[spec.shape for spec in task.full.of_role("output")],
                variation=task.variation, secret=secret, reading=task.reading,
                seconds=task.reference_seconds,
            )  # fmt: skip
        except ReferenceFails as error:
            failure = json.dumps({"failure": str(error)})
            (new_answers / "case.json").write_text(failure, encoding="utf-8")
        except UserError as error:
            raise _NotNow(str(error)) from error


def _no_room(total: int) -> str:
    """Return what this machine lacks for a case of so many bytes; empty where it has all."""
    memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        memory = 1024 * int(text.split("MemAvailable:")[1].split()[0])
    if memory < LEAST_MEMORY * total:
        return f"{memory / 2**30:.1f} GiB of memory are too few for PyTorch's answer"
    disk = shutil.disk_usage(cache_root()).free
    if disk < 2 * total:
        return f"{disk / 2**30:.1f} GiB free in the cache's folder are too few for the answer"
    return ""


def _full_case(task: Task, inputs: Path, answers: Path) -> dict[str, Any] | None:
    """Return what case.json says, tolerances as such; None where a file is missing or damaged."""
    outputs = task.full.of_role("output")
    try:
        described: dict[str, Any] = json.loads((answers / "case.json").read_text(encoding="utf-8"))
        if "failure" in described:
            return described
        tolerances = [
            each and RowTolerance.model_validate(each) for each in described["tolerances"]
        ]
        known = {"drawn", "rows", "exact", "seconds"}
        if len(tolerances) != len(outputs) or not known <= described.keys():
            return None
        for tensor in task.full.tensors:
            folder = answers if tensor.role == "output" else inputs
            if (folder / f"{tensor.name}.bin").stat().st_size != tensor.nbytes:
                return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return described | {"tolerances": tolerances}

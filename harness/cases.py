"""The cases a candidate is verified on: inputs and PyTorch's answers, as raw files in the cache."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .cache import cache_root, new_entry
from .errors import UserError
from .processes import off_loop
from .records import Record, Task, Tolerance
from .tasks import cases_directory, full_case_directories, run_reference

FULL_CASE_BYTES = 8 << 30
"""Largest total of all tensors at full dimensions for which PyTorch's answer is kept."""

LEAST_MEMORY = 6
"""Times the tensors' size that drawing inputs and answering them takes, at the least."""


class FullCase(Record):
    """One case at full dimensions. A candidate's process is told of `inputs` only."""

    inputs: str
    """Folder with NAME.bin of each input, parameter and buffer of the full variant."""
    answers: str
    """Folder with out<k>.bin: PyTorch's answers."""
    tolerances: tuple[Tolerance, ...]


class NoFullCase(Record):
    """There is no answer at full dimensions: nothing can be compared there."""

    reason: str


class Case(Record):
    """One set of inputs and expected outputs."""

    name: str
    """For example seed3-large."""
    directory: str
    """Folder below the cases' own: NAME.bin for each tensor of the verify variant."""
    inputs: str
    """What the floating-point inputs hold, in words."""
    factor: float = 1.0
    """By which the inputs were scaled."""
    tolerances: tuple[Tolerance, ...]
    """Of each output in this case."""
    own_errors: tuple[float | None, ...]
    """PyTorch's own largest error of each output against double precision; None where unknown."""


async def prepare_cases(task: Task) -> Path:
    """Return the folder with a task's cases without blocking; see `prepare_cases_now`."""
    return await off_loop(prepare_cases_now, task)


def prepare_cases_now(task: Task) -> Path:
    """Return the folder with the cases of a task; made now where load_task's are gone.

    cases.json lists the cases; <i>/<tensor>.bin holds raw little-endian row-major elements of each
    tensor of task.verify, outputs included (PyTorch's answer), and <i>/out<k>.f64.bin the answer
    in double precision. Raises UserError.
    """
    final = cases_directory(task)
    if _whole(final, task):
        return final
    shutil.rmtree(final, ignore_errors=True)
    with new_entry(final) as directory:
        run_reference(Path(task.path), task.source, {}, task.verify.dimensions, directory)
    return final


def prepare_full_case_now(task: Task) -> FullCase | NoFullCase:
    """Return the case at full dimensions, or why there is none.

    There is none where the tensors are larger than FULL_CASE_BYTES together, where memory or disk
    have no room for it now, or where PyTorch fails at these dimensions: that is remembered.
    """
    total = sum(tensor.nbytes for tensor in task.full.tensors)
    if total > FULL_CASE_BYTES:
        gib, most = total / 2**30, FULL_CASE_BYTES / 2**30
        return NoFullCase(reason=f"the tensors have {gib:.1f} GiB, over the limit of {most:.0f}")
    inputs, answers = full_case_directories(task)
    described = _full_case(task, inputs, answers)
    if described is None:
        for folder in (inputs, answers):
            shutil.rmtree(folder, ignore_errors=True)
        if no_room := _no_room(total):
            return NoFullCase(reason=no_room)
        with new_entry(answers) as new_answers, new_entry(inputs) as new_inputs:
            try:
                run_reference(
                    Path(task.path), task.source, {}, task.full.dimensions, new_inputs, new_answers
                )
            except UserError as error:
                failure = json.dumps({"failure": str(error)})
                (new_answers / "case.json").write_text(failure, encoding="utf-8")
        described = _full_case(task, inputs, answers) or {"failure": "incomplete files"}
    if "failure" in described:
        return NoFullCase(reason=f"PyTorch fails at these dimensions: {described['failure']}")
    return FullCase(
        inputs=str(inputs), answers=str(answers), tolerances=tuple(described["tolerances"])
    )


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
    """Return what case.json says; None where a file is missing or has another size."""
    try:
        described: dict[str, Any] = json.loads((answers / "case.json").read_text(encoding="utf-8"))
        if "failure" in described:
            return described
        for tensor in task.full.tensors:
            folder = answers if tensor.role == "output" else inputs
            if (folder / f"{tensor.name}.bin").stat().st_size != tensor.nbytes:
                return None
    except (OSError, ValueError):
        return None
    return described


def read_cases(directory: Path) -> tuple[Case, ...]:
    """Return the cases listed in a folder of prepare_cases."""
    listed = json.loads((directory / "cases.json").read_text(encoding="utf-8"))
    return tuple(Case.model_validate(case) for case in listed["cases"])


def read_weak_to(directory: Path) -> str:
    """Return what the cases in a folder of prepare_cases do not tell from right; often nothing."""
    listed = json.loads((directory / "cases.json").read_text(encoding="utf-8"))
    return str(listed["weak_to"])


def _whole(directory: Path, task: Task) -> bool:
    try:
        return all(path.stat().st_size == size for path, size in _expected_files(directory, task))
    except (OSError, ValueError):
        return False


def _expected_files(directory: Path, task: Task) -> Iterator[tuple[Path, int]]:
    for case in read_cases(directory):
        for tensor in task.verify.tensors:
            yield directory / case.directory / f"{tensor.name}.bin", tensor.nbytes

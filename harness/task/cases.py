"""The cases a candidate is verified on: inputs and PyTorch's answers, as raw files in the cache."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..build.cache import new_entry
from ..process.children import off_loop
from ..records import Record, Task, Tolerance
from .loading import cases_directory, run_reference


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

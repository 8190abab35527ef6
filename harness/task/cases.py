"""The cases a candidate is verified on: inputs and PyTorch's answers, as raw files in the cache."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..build.cache import cache_root, new_entry
from ..process.children import off_loop
from ..process.scratch import scratch_folder
from ..records.identity import sha256_of
from ..records.record import Record
from ..records.tasks import Task
from ..records.tensors import Tolerance
from ..records.versions import JUDGE_VERSION
from .claims import ClaimedInput, NotAnInput, require_claimable
from .loading import cases_directory, run_reference
from .pytorch import torch_version


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
    tolerances: tuple[Tolerance | None, ...]
    """Of each output in this case; None for one that PyTorch itself does not meet: it is not
    compared."""
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
        _make(task, directory)
    return final


def read_cases(directory: Path) -> tuple[Case, ...]:
    """Return the cases listed in a folder of prepare_cases; none of a task that is too large."""
    return tuple(Case.model_validate(case) for case in _listed(directory)["cases"])


@contextmanager
def secret_cases(task: Task, secret: int) -> Iterator[Path]:
    """Give a folder as of prepare_cases, whose cases are drawn from a number that nobody knew.

    It is removed afterwards. Raises UserError.
    """
    with scratch_folder("cases", cache_root()) as folder:
        _make(task, folder, secret)
        yield folder


def claimed_case_now(task: Task, claim: ClaimedInput) -> Path:
    """Return a folder as of prepare_cases, whose one case is a claimed input; made where it is not
    there yet.

    Raises NotAnInput where the task's rules do not allow the input, UserError.
    """
    require_claimable(task, claim)
    key = sha256_of(task.id, claim.id, torch_version(), JUDGE_VERSION)
    final = cache_root() / "claims" / key[:2] / key
    if _whole(final, task):
        return final
    shutil.rmtree(final, ignore_errors=True)
    with new_entry(final) as directory:
        found = run_reference(
            Path(task.path), task.source, {}, task.verify.dimensions, directory,
            variation=task.variation, reading=task.reading, seconds=task.reference_seconds,
            asks={"claim": claim.model_dump(mode="json")},
        )  # fmt: skip
        if why := found.get("not_an_input"):
            raise NotAnInput(why)
    return final


def read_constants(directory: Path) -> tuple[Case, ...]:
    """Return cases in each of which one constant, after which it is named, is another."""
    return tuple(Case.model_validate(case) for case in _listed(directory)["constants"])


def read_degenerate(directory: Path) -> str:
    """Return which kernel that computes nothing would pass all cases; empty where none would."""
    return str(_listed(directory)["degenerate"])


def read_weak_to(directory: Path) -> str:
    """Return what the cases in a folder of prepare_cases do not tell from right; often nothing."""
    return str(_listed(directory)["weak_to"])


def _listed(directory: Path) -> dict[str, Any]:
    listed: dict[str, Any] = json.loads((directory / "cases.json").read_text(encoding="utf-8"))
    return listed


def _make(task: Task, directory: Path, secret: int = 0) -> None:
    run_reference(
        Path(task.path), task.source, {}, task.verify.dimensions, directory,
        variation=task.variation, secret=secret, reading=task.reading,
        asks={"large": task.verify.is_large}, seconds=task.reference_seconds,
    )  # fmt: skip


def _whole(directory: Path, task: Task) -> bool:
    try:
        return all(path.stat().st_size == size for path, size in _expected_files(directory, task))
    except (OSError, ValueError, KeyError):
        return False


def _expected_files(directory: Path, task: Task) -> Iterator[tuple[Path, int]]:
    for case in (*read_cases(directory), *read_constants(directory)):
        for tensor in task.verify.tensors:
            yield directory / case.directory / f"{tensor.name}.bin", tensor.nbytes
        outputs = task.verify.of_role("output")
        for spec, error in zip(outputs, case.own_errors, strict=True):
            if error is not None:
                yield directory / case.directory / f"{spec.name}.f64.bin", 8 * spec.numel

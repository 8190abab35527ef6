"""What is known of a task on this machine, kept between workers: its cases, and PyTorch's times.

Which cases PyTorch survives, what their answers may differ by and what the task cannot tell are the
same each time, and cost seconds at real sizes; so does compiling PyTorch's baseline. Nothing of it
is believed unseen: a worker computes one case again, drawn at random, before it believes the rest,
and times eager before it believes the other times. Answers themselves are not kept: the GPU gives
them faster than a file.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from ...records.identity import sha256_of_json
from ...records.record import Record
from ...records.tasks import Task
from ...records.tensors import Tolerance
from ...records.versions import DEVICE_VERSIONS, JUDGE_VERSION
from .case_plan import CasePlan

AGREEMENT = 1.5
"""Factor between the parts of two tolerances of one case: PyTorch's own error, which they
may come from, differs a little where it adds in no fixed order."""
SAME_TIME = 0.05
"""By how much eager may differ from its kept time, relative to it, for the other to be believed."""


@dataclass(frozen=True)
class KeptCases:
    """The cases of a task, and what they do not tell."""

    plans: tuple[CasePlan, ...]
    constants: tuple[CasePlan, ...]
    timed_tolerances: tuple[Tolerance | None, ...]
    degenerate: str = ""
    weak_to: str = ""


class KeptTimes(Record):
    """PyTorch's times of the same rounds, in microseconds, or why one could not be had."""

    eager: float
    compiled: float = 0.0
    """0 where torch.compile failed."""
    failure: str = ""

    def is_confirmed_by(self, eager: float) -> bool:
        """Say whether eager takes as long as it did."""
        return abs(eager - self.eager) <= SAME_TIME * self.eager


Value = TypeVar("Value")
_CASES = TypeAdapter(KeptCases)
_TIMES = TypeAdapter(KeptTimes)


class Kept:
    """A folder of what is kept, for one task on one machine. What is damaged there is not there.

    Args:
        folder: of all tasks; made where it is missing.
        machine: the GPU, PyTorch and whatever else makes another answer or another time.
    """

    def __init__(self, folder: Path, task: Task, machine: str) -> None:
        key = sha256_of_json(
            [task.id, task.full.dimensions, task.variation.model_dump(mode="json"), machine,
             JUDGE_VERSION, DEVICE_VERSIONS["cuda"]]
        )  # fmt: skip
        self._folder = folder
        self._name = key[:32]

    def cases(self) -> KeptCases | None:
        """Return the cases that were kept."""
        return _read(self._path("cases"), _CASES)

    def times(self) -> KeptTimes | None:
        """Return the times that were kept."""
        return _read(self._path("times"), _TIMES)

    def keep_cases(self, cases: KeptCases) -> None:
        """Keep the cases; a disk that is full is no fault."""
        self._write("cases", _CASES.dump_python(cases, mode="json"))

    def keep_times(self, times: KeptTimes) -> None:
        """Keep the times; a disk that is full is no fault."""
        self._write("times", _TIMES.dump_python(times, mode="json"))

    def _path(self, what: str) -> Path:
        return self._folder / f"{self._name}.{what}.json"

    def _write(self, what: str, value: object) -> None:
        path = self._path(what)
        new = path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(value), encoding="utf-8")
            new.replace(path)


def are_alike(first: CasePlan, second: CasePlan) -> bool:
    """Say whether a case computed again is the one that was kept."""
    if (first.name, first.how) != (second.name, second.how):
        return False
    if [each is None for each in first.own_errors] != [each is None for each in second.own_errors]:
        return False  # One of them lacked the memory for double precision.
    pairs = list(zip(first.tolerances, second.tolerances, strict=False))
    return len(first.tolerances) == len(second.tolerances) and all(
        a is b is None or (a is not None and b is not None and _are_near(a, b)) for a, b in pairs
    )


def _are_near(first: Tolerance, second: Tolerance) -> bool:
    names = ("absolute", "relative", "step", "least_step", "share")
    pairs = ((getattr(first, name), getattr(second, name)) for name in names)
    return all(max(pair) <= AGREEMENT * min(pair) for pair in pairs)


def _read(path: Path, kind: TypeAdapter[Value]) -> Value | None:
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
        return kind.validate_python(value)
    except (OSError, ValueError, RecursionError):  # pydantic's ValidationError is a ValueError.
        return None

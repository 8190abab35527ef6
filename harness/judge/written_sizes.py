"""Says which of a task's sizes a source writes out: it is then wrong at every other size.

On the simulated device a candidate is verified at shrunken dimensions. One that has the full ones
in it fails there by what looks like other faults: reads past the end, or a wrong answer.
"""

from __future__ import annotations

import re

from ..records.builds import Diagnostic
from ..records.evaluations import StageResult
from ..records.tasks import Task
from ..task.contract import header
from ..vetting.source_rules import logical_lines

_CONSTANT = re.compile(r"^constexpr long long (\w+) = (\d+);", re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.])(\d+)[uUlL]{0,3}(?![\w.])")
SMALLEST = 32
"""Smaller numbers stand for too much else."""


def with_written_sizes(failed: StageResult, task: Task, source: str) -> StageResult:
    """Return a failed verification with what the source writes out, where that may be the cause."""
    found = written_sizes(task, source)
    if found is None:
        return failed
    reason = f"{failed.reason}; {found.message}"
    return failed.model_copy(
        update={"reason": reason, "diagnostics": (*failed.diagnostics, found)}
    )


def written_sizes(task: Task, source: str) -> Diagnostic | None:
    """Return the first full size that stands in the source as a number, its name nowhere."""
    shrunken = dict(_CONSTANT.findall(header(task.verify)))
    names: dict[str, list[str]] = {}
    for name, value in _CONSTANT.findall(header(task.full)):
        if value != shrunken.get(name) and int(value) >= SMALLEST:
            names.setdefault(value, []).append(name)
    words = set(re.findall(r"\w+", source))
    for line, text in logical_lines(source):
        for value in _NUMBER.findall(text):
            if value in names and words.isdisjoint(names[value]):
                first = names[value][0]
                return Diagnostic(
                    kind="written_size",
                    message=f"if the {value} in line {line} is {first}, as at full dimensions: "
                    f"that is {shrunken.get(first)} here, use the names of task.cuh",
                    line=line,
                )
    return None

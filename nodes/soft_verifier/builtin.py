"""Built-in soft verifier: what a reader of the winner should know; it never vetoes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...harness.records.tasks import Task
from ..records.reviews import SoftReview

_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


def review(task: Task, source: str) -> SoftReview:
    """Return remarks on a kernel that passed: inputs of the reference that it never touches."""
    code = _COMMENT.sub(" ", source)
    used = set(_references(task))
    remarks = tuple(
        f"the reference uses {tensor.role} {tensor.name}; best.cu names it in launch() only"
        for tensor in task.full.of_role("input", "parameter", "buffer")
        if tensor.name in used and len(re.findall(rf"\b{tensor.name}\b", code)) == 1
    )
    return SoftReview(vetoed=False, remarks=remarks, author="builtin")


def _references(task: Task) -> Iterator[str]:
    """Yield the name of every value that an operation of the reference takes."""

    def within(value: Any) -> Iterator[str]:
        if isinstance(value, dict) and isinstance(value.get("ref"), str):
            yield value["ref"]
        elif isinstance(value, list | tuple):
            for item in value:
                yield from within(item)

    for node in task.program.nodes if task.program else ():
        yield from within((*node.args, *node.kwargs.values()))

"""cache_row_in_registers: what several passes read of a row is loaded once and kept."""

from __future__ import annotations

from dataclasses import replace

from ...harness.records import Task
from ..rewriting.records import Inapplicable, Outcome, Parameters, Rewritten
from ..rewriting.rewrite import Rewrite
from ..rewriting.row_kernel import row_kernels, written


def rewrite() -> Rewrite:
    """Return the technique."""
    return Rewrite("cache_row_in_registers", _apply)


def _apply(source: str, task: Task, parameters: Parameters) -> Outcome:
    reason = "the row is kept in registers already"
    for found in row_kernels(source, task):
        if found.body.cached:
            continue
        if found.body.mapping == "thread":
            reason = "one thread cannot keep a whole row: share the row first"
            continue
        text = written(found, replace(found.body, cached=True))
        return Rewritten(source=text, note=f"{found.kernel.name}: the row is read once")
    return Inapplicable(reason=reason)

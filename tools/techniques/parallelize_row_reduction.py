"""parallelize_row_reduction: a warp takes a row, its lanes share the columns and shuffle sums."""

from __future__ import annotations

from ...harness.records import Task
from ..rewriting.records import Inapplicable, Outcome, Parameters, Rewritten
from ..rewriting.rewrite import Rewrite
from ..rewriting.row_kernel import row_kernels, with_mapping


def rewrite() -> Rewrite:
    """Return the technique."""
    return Rewrite("parallelize_row_reduction", _apply)


def _apply(source: str, task: Task, parameters: Parameters) -> Outcome:
    for found in row_kernels(source, task):
        if found.body.mapping == "thread":
            text = with_mapping(found, "warp")
            return Rewritten(source=text, note=f"{found.kernel.name}: one warp a row")
    return Inapplicable(reason="rows are shared by more than one thread already")

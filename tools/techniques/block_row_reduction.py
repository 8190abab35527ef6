"""block_row_reduction: a block takes a row; warps combine through shared memory."""

from __future__ import annotations

from ...harness.records import Task
from ..rewriting.records import Inapplicable, Outcome, Parameters, Rewritten
from ..rewriting.rewrite import Rewrite
from ..rewriting.row_kernel import row_kernels, with_mapping


def rewrite() -> Rewrite:
    """Return the technique."""
    return Rewrite("block_row_reduction", _apply)


def _apply(source: str, task: Task, parameters: Parameters) -> Outcome:
    for found in row_kernels(source, task):
        if found.body.mapping != "block":
            text = with_mapping(found, "block")
            return Rewritten(source=text, note=f"{found.kernel.name}: one block a row")
    return Inapplicable(reason="a block works on each row already")

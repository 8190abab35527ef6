"""remove_barriers: one barrier less. Usually wrong; verification on the device decides."""

from __future__ import annotations

from ...harness.records import Task
from ..rewriting.records import Inapplicable, Outcome, Parameters, Rewritten
from ..rewriting.rewrite import Rewrite
from ..rewriting.syntax import Source, descendants, text_of


def rewrite() -> Rewrite:
    """Return the technique; `which` counts the barriers in source order, from 0."""
    return Rewrite("remove_barriers", _apply, {"which": (0, 1, 2, 3)})


def _apply(source: str, task: Task, parameters: Parameters) -> Outcome:
    parsed = Source(source)
    barriers = [
        node for node in descendants(parsed.root, "expression_statement")
        if text_of(node).replace(" ", "") == "__syncthreads();"
    ]  # fmt: skip
    which = parameters["which"]
    if which >= len(barriers):
        return Inapplicable(reason=f"the source has {len(barriers)} barriers")
    node = barriers[which]
    line = parsed.data.rfind(b"\n", 0, node.start_byte)
    end = parsed.data.find(b"\n", node.end_byte)
    parsed.cut(line, end)
    return Rewritten(source=parsed.result(), note=f"without the barrier of line "
                     f"{node.start_point[0] + 1}")  # fmt: skip

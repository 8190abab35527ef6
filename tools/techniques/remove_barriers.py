"""remove_barriers: one barrier less. Usually wrong; verification on the device decides."""

from __future__ import annotations

from ...harness.records.tasks import Task
from ..rewriting.records import Inapplicable, Kernels, Outcome, Parameters, Rewritten
from ..rewriting.source.syntax import Source, descendants, text_of
from .conditions import AtHand
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `which` counts the barriers in source order, from 0."""
    return Technique(
        name="remove_barriers",
        description=(
            "Drop a __syncthreads() that orders nothing between warps, or replace it by "
            "__syncwarp() or shuffles."
        ),
        applies_when=(
            "Barriers where only threads of one warp share data, or doubled barriers; stalls at "
            "barriers are a visible share."
        ),
        avoid_when=(
            "Any other warp reads what was written: a missing barrier is a race. The race detector "
            "must agree."
        ),
        side_effects="Wrong by a race if misjudged.",
        notes=(
            "Steps of a reduction tree below 32 threads need only __syncwarp(), better shuffles. "
            "After the last use of a buffer no barrier is needed unless it is written again."
        ),
        parameters={"which": (0, 1, 2, 3)},
        sources=('CUDA C++ Programming Guide, "Synchronization Functions"',),
        change=_apply,
        unfit=_no_barriers,
    )


def _no_barriers(at_hand: AtHand) -> str | None:
    waits = "__syncthreads" in at_hand.source or ".sync(" in at_hand.source
    return None if waits else "the file has no barriers"


def _apply(source: str, task: Task, parameters: Parameters, _: Kernels) -> Outcome:
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

"""several_rows_per_warp: short rows share a warp, so that no lane idles."""

from __future__ import annotations

from ...harness.records.tasks import Task
from ..rewriting.kernels.recognised import first_changed
from ..rewriting.kernels.row_kernel import RowKernel, known_columns, row_kernels, with_mapping
from ..rewriting.records import Kernels, NotRecognised, Outcome, Parameters, Rewritten
from .conditions import at_most, computes
from .operators import ROWS
from .technique import Technique

MOST = 16
"""Elements of a row for each lane above which the whole warp should take it."""


def technique() -> Technique:
    """Return the technique; `lanes` is the number of lanes that share a row."""
    return Technique(
        name="several_rows_per_warp",
        description=(
            "Give each short row to a part of a warp (2 to 16 lanes, a few elements each), so that "
            "a warp reduces several rows at once."
        ),
        applies_when=(
            "Row operations whose rows are shorter than a warp loads at once (up to about 64 "
            "elements): with a warp a row most lanes idle and most shuffle steps add nothing."
        ),
        avoid_when=(
            "Rows are long: a part of a warp then loops over the row with few loads in flight."
        ),
        side_effects="More rows a block, fewer blocks; shuffles of sub-groups.",
        notes=(
            "lanes = a power of two near row length / elements a lane; row = global thread / "
            "lanes; __shfl_xor_sync with offsets lanes/2 .. 1 and the full mask keeps sub-groups "
            "apart (all lanes take part: predicate the tail, do not return). Rows of 16 bytes "
            "multiples: one vector load a lane."
        ),
        parameters={"lanes": (8, 4, 16)},
        sources=('CUDA C++ Programming Guide, "Warp Shuffle Functions"',),
        change=_apply,
        conditions=(computes(*ROWS), at_most("innermost", 128.0)),
    )


def _apply(source: str, task: Task, parameters: Parameters, kernels: Kernels) -> Outcome:
    lanes = parameters["lanes"]

    def change(found: RowKernel) -> Rewritten:
        if (found.body.mapping, found.body.lanes) == ("warp", lanes):
            raise NotRecognised(f"{lanes} lanes share a row already")
        pair = found.constants.pair(known_columns(found))
        if pair is None or pair.full > MOST * lanes:
            raise NotRecognised(f"rows are too long for {lanes} lanes")
        text = with_mapping(found, "warp", lanes)
        return Rewritten(source=text, note=f"{found.kernel.name}: {lanes} lanes a row")

    return first_changed(row_kernels(source, task, kernels), change)

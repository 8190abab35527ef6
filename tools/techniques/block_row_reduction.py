"""block_row_reduction: a block takes a row; warps combine through shared memory."""

from __future__ import annotations

from ...harness.records.tasks import Task
from ..rewriting.kernels.recognised import first_changed
from ..rewriting.kernels.row_kernel import RowKernel, row_kernels, with_mapping
from ..rewriting.records import Kernels, NotRecognised, Outcome, Parameters, Rewritten
from .conditions import AtHand, computes, first_of, no_rows, rows_shared
from .operators import PRODUCTS, ROWS
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="block_row_reduction",
        moves=("-idle_sms", "-uncoalesced"),
        description=(
            "Give each row to a block: threads stride along the row, warps reduce by shuffles, "
            "then meet in shared memory."
        ),
        applies_when=(
            "Rows are long (from about 1024 elements) or few, so that a warp per row leaves lanes "
            "of the GPU idle or loops too long."
        ),
        avoid_when="Rows are short: barriers and the second stage then cost more than the loads.",
        side_effects="Two barriers per reduction; shared memory of one value per warp.",
        notes=(
            "Reduce inside each warp by shuffles, lane 0 writes its warp's value to shared memory, "
            "barrier, the first warp reduces those, broadcast through shared memory, barrier "
            "before the buffer is used again."
        ),
        sources=('NVIDIA Technical Blog, "Faster Parallel Reductions on Kepler" (2014)',),
        change=_apply,
        conditions=(computes(*ROWS, *PRODUCTS),),
        unfit=first_of(no_rows, _block_rows),
    )


def _block_rows(at_hand: AtHand) -> str | None:
    meets = "__shared__" in at_hand.source and "__syncthreads" in at_hand.source
    return rows_shared(at_hand) if meets else None


def _apply(source: str, task: Task, parameters: Parameters, kernels: Kernels) -> Outcome:
    def change(found: RowKernel) -> Rewritten:
        if found.body.mapping == "block":
            raise NotRecognised("a block works on each row already")
        text = with_mapping(found, "block")
        return Rewritten(source=text, note=f"{found.kernel.name}: one block a row")

    return first_changed(row_kernels(source, task, kernels), change)

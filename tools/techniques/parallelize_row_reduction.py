"""parallelize_row_reduction: a warp takes a row, its lanes share the columns and shuffle sums."""

from __future__ import annotations

from ...harness.records.tasks import Task
from ..rewriting.kernels.recognised import first_changed
from ..rewriting.kernels.row_kernel import RowKernel, row_kernels, with_mapping
from ..rewriting.records import Kernels, NotRecognised, Outcome, Parameters, Rewritten
from .conditions import computes, first_of, no_rows, rows_shared
from .operators import PRODUCTS, ROWS
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="parallelize_row_reduction",
        moves=("-uncoalesced", "-idle_sms"),
        description=(
            "Give each row to a warp: lanes stride along the row, partial results meet by shuffles."
        ),
        applies_when=(
            "One thread loops over a whole row (softmax, norms, row sums): lanes of a warp then "
            "touch addresses a row apart, a sector each."
        ),
        avoid_when=(
            "Rows are shorter than about 32 elements, or a single row is so long that one warp "
            "cannot keep enough loads in flight."
        ),
        side_effects=(
            "The order of summation changes (usually more accurate); the launch has 32 times as "
            "many threads."
        ),
        notes=(
            "lane = threadIdx.x & 31, row = global thread / 32, loop column from lane in steps of "
            "32, combine with __shfl_xor_sync(0xffffffff, v, offset) for offsets 16 to 1, every "
            "lane then holds the result. Several warps (rows) per block."
        ),
        sources=(
            'NVIDIA Technical Blog, "Faster Parallel Reductions on Kepler" (2014)',
            'NVIDIA Technical Blog, "Using CUDA Warp-Level Primitives" (2018)',
        ),
        change=_apply,
        conditions=(computes(*ROWS, *PRODUCTS),),
        unfit=first_of(no_rows, rows_shared),
    )


def _apply(source: str, task: Task, parameters: Parameters, kernels: Kernels) -> Outcome:
    def change(found: RowKernel) -> Rewritten:
        if found.body.mapping != "thread":
            raise NotRecognised("rows are shared by more than one thread already")
        text = with_mapping(found, "warp")
        return Rewritten(source=text, note=f"{found.kernel.name}: one warp a row")

    return first_changed(row_kernels(source, task, kernels), change)

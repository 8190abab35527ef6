"""column_reduction: sums down the columns: threads side by side along the contiguous dimension."""

from __future__ import annotations

from .conditions import OTHER_TASK, AtHand, computes
from .operators import ROWS, reduced_dimensions
from .technique import Technique


def technique() -> Technique:
    """Return the technique.

    `splits` is the number of parts that the reduced dimension is cut into.
    """
    return Technique(
        name="column_reduction",
        description=(
            "Reduce along a dimension that is not the innermost with neighbouring threads on "
            "neighbouring columns, the reduced dimension cut into parts that blocks or warps "
            "combine."
        ),
        applies_when=(
            "Sums, means, maxima or statistics over a leading or middle dimension; few columns, so "
            "that one thread a column leaves the GPU empty."
        ),
        avoid_when="The reduced dimension is the innermost (rows): lanes must share a row then.",
        side_effects=(
            "A second stage (shared memory, or partial results in the workspace) where the "
            "dimension is cut."
        ),
        notes=(
            "Block of 32 x 8: threadIdx.x along columns (each loads 4 bytes, better a float4 of 4 "
            "columns), threadIdx.y strides over the reduced dimension with two to four independent "
            "accumulators; combine the 8 through shared memory. With too few blocks cut the "
            "dimension over blockIdx.y into the workspace and add in a second launch or the last "
            "block."
        ),
        parameters={"splits": (1, 4, 16)},
        sources=(
            'CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"',
            'Harris, "Optimizing Parallel Reduction in CUDA" (NVIDIA Developer Technology, 2007)',
        ),
        conditions=(computes(*ROWS),),
        unfit=_rows_alone,
    )


def _rows_alone(at_hand: AtHand) -> str | None:
    known = reduced_dimensions(at_hand.task)
    columns = any(-1 not in dims for dims in known)
    return None if columns or at_hand.task.program is None else OTHER_TASK

"""last_block_reduction: the block that finishes last adds up the partial results."""

from __future__ import annotations

from .conditions import SEVERAL_LAUNCHES, computes
from .operators import ROWS
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="last_block_reduction",
        description=(
            "Let the last block to finish, found by an atomic counter, reduce the partial results, "
            "instead of a second launch."
        ),
        applies_when=(
            "A reduction in two launches, of which the second takes a few microseconds of little "
            "work."
        ),
        avoid_when="There are many partial results: one block alone reads them slowly.",
        side_effects=(
            "A counter in the workspace that each call must clear (a memset is a launch too, if a "
            "short one) or leave at zero."
        ),
        notes=(
            "Write the partial, __threadfence(), thread 0: ticket = atomicAdd(counter, 1), share "
            "it, barrier; in the last block read the partials through volatile or __ldcg and "
            "reduce. atomicInc wraps to zero by itself, but the workspace begins uninitialised: "
            "clear it with cudaMemsetAsync in launch()."
        ),
        sources=(
            'CUDA C++ Programming Guide, "Memory Fence Functions" (example: sum of an array)',
            'CUDA Samples, "threadFenceReduction"',
        ),
        conditions=(computes(*ROWS), SEVERAL_LAUNCHES),
    )

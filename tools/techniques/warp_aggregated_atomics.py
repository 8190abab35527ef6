"""warp_aggregated_atomics: one atomic operation for a warp or a block."""

from __future__ import annotations

from .conditions import no_atomics
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="warp_aggregated_atomics",
        moves=("-atomics",),
        description="Reduce within a warp (or block) first, then one atomic for the group.",
        applies_when=(
            "Many lanes add to the same address: atomics on one address serialise at about 1 to 2 "
            "ns each."
        ),
        avoid_when="Addresses differ per lane: there is nothing to aggregate.",
        side_effects="The order of summation changes.",
        notes=(
            "__reduce_add_sync for integers on sm_80 and newer, shuffles for floats, lane 0 issues "
            "the atomic. For histograms keep a copy in shared memory per block."
        ),
        sources=(
            'NVIDIA Technical Blog, "CUDA Pro Tip: Optimized Filtering with '
            'Warp-Aggregated Atomics" (2014)',
        ),
        unfit=no_atomics,
    )

"""throttle_occupancy: fewer resident warps, so that what each reuses stays in L1."""

from __future__ import annotations

from .conditions import at_most
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `blocks_per_sm` is how many blocks are to be resident."""
    return Technique(
        name="throttle_occupancy",
        description=(
            "Let fewer blocks be resident (or give L1 more of the memory it shares with shared "
            "memory), so that the data that warps use again are not pushed out between two uses."
        ),
        applies_when=(
            "L1 hits are few though each thread or block reads its lines again: the resident "
            "warps' working set is larger than L1."
        ),
        avoid_when="Data are used once, or latency is what holds back.",
        side_effects="Lower occupancy.",
        notes=(
            "Dynamic shared memory that nobody uses limits the blocks; larger blocks or persistent "
            "ones do too. cudaFuncSetAttribute with a preferred carveout of 0 leaves L1 nearly all "
            "of what it divides with shared memory (256 KB on sm_90, 192 on sm_80). Better still: "
            "tile the loop so that a block's lines are used up before the next ones come."
        ),
        parameters={"blocks_per_sm": (2, 4, 1)},
        sources=(
            'Rogers, O\'Connor and Aamodt, "Cache-Conscious Wavefront Scheduling" (MICRO 2012)',
            'CUDA C++ Programming Guide, "Shared Memory" (carveout by cudaFuncSetAttribute)',
        ),
        conditions=(at_most("l1_hit", 0.8),),
    )

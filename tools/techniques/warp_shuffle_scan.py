"""warp_shuffle_scan: a row's running result by shuffles in a block, carried from tile to tile."""

from __future__ import annotations

from .conditions import already, computes
from .operators import SCANS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `items` is the number of elements of a thread."""
    return Technique(
        name="warp_shuffle_scan",
        description=(
            "Let a block (or warp) scan a row: each thread its own few elements, warps by "
            "shuffles, warp sums through shared memory, the total carried to the row's next tile."
        ),
        applies_when=(
            "Cumulative operations along rows done by one thread a row, or by a tree with a "
            "barrier for each level."
        ),
        avoid_when=(
            "The scanned dimension is not the innermost and neighbouring columns are independent: "
            "then a thread a column is coalesced already; split the column instead."
        ),
        side_effects="Two barriers a tile; a different order of summation.",
        notes=(
            "Load several elements a thread (16 bytes), scan them in registers, __shfl_up_sync in "
            "steps 1, 2, 4, 8, 16 over thread totals, lane 31's totals to shared memory, the first "
            "warp scans those, add the prefix, store 16 bytes. cub::BlockScan and cub::WarpScan "
            "are allowed. Loop over the row with a carry."
        ),
        parameters={"items": (4, 8)},
        sources=(
            'Harris, Sengupta and Owens, "Parallel Prefix Sum (Scan) with CUDA" (GPU Gems 3, 2007)',
            'CUDA C++ Programming Guide, "Warp Shuffle Functions"',
        ),
        conditions=(computes(*SCANS),),
        unfit=already(r"__shfl_up|BlockScan|WarpScan", "the scan goes by shuffles already"),
    )

"""grid_sync_fusion: dependent launches become one, with a barrier of the grid between."""

from __future__ import annotations

from .conditions import SEVERAL_LAUNCHES, already
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `blocks_per_sm` is the number of blocks for each multiprocessor."""
    return Technique(
        name="grid_sync_fusion",
        description=(
            "Join launches that depend on each other into one cooperative launch with grid-wide "
            "barriers between the phases."
        ),
        applies_when=(
            "Several short launches in a row that cannot be fused element by element, each a few "
            "microseconds long."
        ),
        avoid_when=(
            "Phases want very different grids, or are long: a launch costs about what a barrier "
            "does (1 to 2 us)."
        ),
        side_effects=(
            "All blocks must be resident together; registers and shared memory of the worst phase "
            "for all."
        ),
        notes=(
            "cudaLaunchCooperativeKernel with at most SMs times resident blocks "
            "(cudaOccupancyMaxActiveBlocksPerMultiprocessor), grid-stride loops in every phase, "
            "cooperative_groups::this_grid().sync() between. Keep in shared memory or registers "
            "what the same block uses again."
        ),
        parameters={"blocks_per_sm": (1, 2, 4)},
        sources=('CUDA C++ Programming Guide, "Grid Synchronization"',),
        conditions=(SEVERAL_LAUNCHES,),
        unfit=already(r"this_grid|grid_group", "it meets at the grid's barrier already"),
    )

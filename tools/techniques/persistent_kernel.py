"""persistent_kernel: the resident blocks take tile after tile."""

from __future__ import annotations

from .conditions import at_least
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `blocks_per_sm` is the number of blocks for each multiprocessor."""
    return Technique(
        name="persistent_kernel",
        description="Launch exactly the resident blocks and hand out tiles in a loop.",
        applies_when=(
            "Many waves of short tiles with set-up work (loading weights, computing indices) that "
            "could be shared; ragged last wave."
        ),
        avoid_when="One wave or less.",
        side_effects="Needs care for the order of tiles (L2 reuse).",
        notes=(
            "Tile index from blockIdx.x in steps of gridDim.x, or an atomic counter. Keep what is "
            "common in registers or shared memory across tiles."
        ),
        parameters={"blocks_per_sm": (1, 2)},
        sources=(
            'Gupta, Stuart and Owens, "A Study of Persistent Threads Style GPU '
            'Programming for GPGPU Workloads" (InPar 2012)',
        ),
        conditions=(at_least("waves", 1.0),),
    )

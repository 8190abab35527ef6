"""double_buffering: the next tile is loaded while this one is used."""

from __future__ import annotations

from .conditions import copied_ahead
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `stages` is the number of tiles in shared memory."""
    return Technique(
        name="double_buffering",
        description=(
            "Keep two shared-memory buffers: load the next tile while computing on this one."
        ),
        applies_when=(
            "A tiled loop that alternates loading and computing with barriers between, at low "
            "occupancy."
        ),
        avoid_when=(
            "Occupancy already overlaps blocks, or shared memory would halve the resident blocks."
        ),
        side_effects="Twice the shared memory; one barrier per tile instead of two.",
        notes=(
            "Load the next tile to registers before the inner product, store to the other buffer "
            "after it, one barrier."
        ),
        parameters={"stages": (2,)},
        sources=('CUTLASS documentation, "Efficient GEMM in CUDA", section "Pipelining"',),
        unfit=copied_ahead,
    )

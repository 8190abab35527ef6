"""shuffle_transpose: a small matrix turns in the registers of a warp."""

from __future__ import annotations

from .conditions import computes, no_waste
from .operators import MOVES
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `size` is the side of the matrix."""
    return Technique(
        name="shuffle_transpose",
        description=(
            "Transpose small tiles between the lanes of a warp by shuffles, so that loads and "
            "stores are both wide and coalesced without shared memory."
        ),
        applies_when=(
            "Interleaving or de-interleaving (arrays of short vectors, complex parts, heads of "
            "attention), or transposes of dimensions up to 32."
        ),
        avoid_when="Large transposes: a tile in shared memory moves more a barrier.",
        side_effects="log2(size) rounds of shuffles and selects; a few registers.",
        notes=(
            "A thread holds size values; in round k exchange the half whose index bit k differs "
            "from the lane's bit k: keep = lane & (1 << k) ? a : b, __shfl_xor_sync the other. "
            "Indices of the array must be constants (unrolled), else it goes to local memory."
        ),
        parameters={"size": (4, 8)},
        sources=(
            'Catanzaro, Keller and Garland, "A Decomposition for In-place Matrix Transposition" '
            "(PPoPP 2014)",
            'CUDA C++ Programming Guide, "Warp Shuffle Functions"',
        ),
        conditions=(computes(*MOVES),),
        unfit=no_waste,
    )

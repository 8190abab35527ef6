"""loop_interchange: neighbouring threads touch neighbouring addresses."""

from __future__ import annotations

from .conditions import no_waste
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="loop_interchange",
        moves=("-uncoalesced", "-load_sectors"),
        description=(
            "Swap loops or thread axes so that neighbouring threads touch neighbouring addresses."
        ),
        applies_when=(
            "threadIdx.x runs along a dimension that is not the innermost of the tensors: sectors "
            "per request near 32, most bytes wasted."
        ),
        avoid_when=(
            "The other operand would become strided instead (then stage it through shared memory)."
        ),
        side_effects="None.",
        notes=(
            "Map threadIdx.x to the last dimension of the output and of the most frequently read "
            "input; in serial loops put the contiguous dimension innermost."
        ),
        sources=('CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"',),
        unfit=no_waste,
    )

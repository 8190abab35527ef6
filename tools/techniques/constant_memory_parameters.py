"""constant_memory_parameters: small uniform tables come with the launch, not from global memory."""

from __future__ import annotations

from .conditions import already
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="constant_memory_parameters",
        description=(
            "Pass small uniform tables by value in a kernel parameter struct or in constant memory."
        ),
        applies_when=(
            "All lanes read the same small table (coefficients, strides, a bias scalar) through "
            "global loads."
        ),
        avoid_when="Lanes read different entries: constant memory serialises them.",
        side_effects="At most 4 KB (64 KB of constant memory).",
        notes=(
            "Struct of arrays by value as __grid_constant__ const, or __constant__ with a copy on "
            "the stream."
        ),
        sources=('CUDA C++ Best Practices Guide, "Constant Memory"',),
        unfit=already(
            "__constant__|__grid_constant__", "small tables are in constant memory already"
        ),
    )

"""kernel_fusion_epilogue: what follows a product is done to its accumulators."""

from __future__ import annotations

from .conditions import SEVERAL_LAUNCHES, computes
from .operators import WITH_PRODUCTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="kernel_fusion_epilogue",
        moves=("-more_launches",),
        description=(
            "Apply bias, activation, scaling or residual to the accumulators of a product before "
            "storing them."
        ),
        applies_when="A product followed by elementwise kernels on its output.",
        avoid_when=(
            "What follows needs other outputs of the product (row softmax over more than a tile)."
        ),
        side_effects="One kernel instead of several; a few more registers.",
        notes=(
            "After the loop over K: load bias for the column, apply, store. Saves a write and a "
            "read of the whole output for each kernel removed."
        ),
        sources=('CUTLASS documentation, "Efficient GEMM in CUDA", section "Epilogue"',),
        conditions=(computes(*WITH_PRODUCTS), SEVERAL_LAUNCHES),
    )

"""reduction_in_epilogue: statistics of a result are gathered while it is written."""

from __future__ import annotations

from .conditions import SEVERAL_LAUNCHES, computes
from .operators import ROWS
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="reduction_in_epilogue",
        description=(
            "Gather sums, maxima or squares of a kernel's results while they are still in "
            "registers, so that the next kernel does not read the tensor to find them."
        ),
        applies_when=(
            "A product, convolution or elementwise kernel is followed by a reduction or a "
            "normalisation of its output."
        ),
        avoid_when=(
            "What is gathered needs a barrier over the whole grid before anything else can go on, "
            "and the tensor is small: then one fused kernel is better."
        ),
        side_effects="Partial results in the workspace; a different order of summation.",
        notes=(
            "Reduce the block's accumulators by shuffles, write one partial a row (or column) and "
            "block tile to the workspace; the consumer adds the partials as it begins. Shift sums "
            "of squares by a value near the mean, or merge (count, mean, M2) as Chan's formula has "
            "it."
        ),
        sources=(
            'Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance: Analysis '
            'and Recommendations" (The American Statistician, 1983)',
            'CUTLASS, example 37, "gemm_layernorm_gemm_fusion"',
        ),
        conditions=(computes(*ROWS), SEVERAL_LAUNCHES),
    )

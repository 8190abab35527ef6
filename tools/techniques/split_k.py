"""split_k: several blocks share the sum of one result."""

from __future__ import annotations

from .conditions import at_most, computes
from .operators import WITH_PRODUCTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `splits` is the number of parts of K."""
    return Technique(
        name="split_k",
        moves=("-idle_sms", "-unfilled"),
        description=(
            "Split the reduction dimension of a product over blocks and add the partial results."
        ),
        applies_when="Outputs are few but K is long: the grid does not fill the GPU.",
        avoid_when="The grid fills the GPU already: partial results only add traffic.",
        side_effects="Needs a workspace or atomics; the order of summation changes.",
        notes=(
            "Partial sums to the workspace, a second kernel adds them (deterministic); atomicAdd "
            "only where nondeterminism is allowed."
        ),
        parameters={"splits": (4, 2, 8, 16)},
        sources=(
            'CUTLASS documentation, "Efficient GEMM in CUDA", section "Parallelized Reductions"',
        ),
        conditions=(computes(*WITH_PRODUCTS), at_most("waves", 1.0)),
    )

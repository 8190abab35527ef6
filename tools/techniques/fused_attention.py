"""fused_attention: scores, softmax and values of attention in one kernel, tile by tile."""

from __future__ import annotations

from .conditions import SEVERAL_LAUNCHES, computes
from .operators import ATTENTION, PRODUCTS, SOFTMAXES
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `tile_q` and `tile_k` are the rows of queries and of keys of a tile."""
    return Technique(
        name="fused_attention",
        description=(
            "Compute attention in one kernel: a block holds a tile of queries and walks over keys "
            "and values, keeping running maxima and sums, so that scores never reach memory."
        ),
        applies_when=(
            "Softmax of a product times another product: scores written and read through DRAM are "
            "most of the traffic."
        ),
        avoid_when=(
            "The scores themselves are an output, or a row is normalised by other means than "
            "softmax."
        ),
        side_effects=(
            "Registers for accumulators of the head size; a rescaling when a maximum moves; "
            "different rounding."
        ),
        notes=(
            "For each tile of keys: S = Q K^T in registers, m' = max(m, rowmax S), P = exp(S - "
            "m'), l = l exp(m - m') + rowsum P, O = O exp(m - m') + P V; divide by l at the end. "
            "Fold the scale and log2(e) into Q and use exp2. Skip tiles that a causal mask leaves "
            "empty, and mask inside diagonal ones only. fp32: products by split factors on tensor "
            "cores. Few queries: split keys over blocks and merge (m, l, O)."
        ),
        parameters={"tile_q": (64, 128), "tile_k": (64, 32)},
        sources=(
            'Dao, Fu, Ermon, Rudra and Re, "FlashAttention: Fast and Memory-Efficient Exact '
            'Attention with IO-Awareness" (NeurIPS 2022)',
            'Rabe and Staats, "Self-attention Does Not Need O(n^2) Memory" (arXiv:2112.05682, '
            "2021)",
        ),
        conditions=(
            computes(*SOFTMAXES, *ATTENTION),
            computes(*PRODUCTS, *ATTENTION),
            SEVERAL_LAUNCHES,
        ),
    )

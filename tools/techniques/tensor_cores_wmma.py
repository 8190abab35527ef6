"""tensor_cores_wmma: products of half types on the tensor cores."""

from __future__ import annotations

from .conditions import among, computes
from .operators import WITH_PRODUCTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `tile` is a block's side of the result, `warp_tile` a warp's."""
    return Technique(
        name="tensor_cores_wmma",
        moves=("+tensor",),
        description="Compute matrix products on tensor cores through nvcuda::wmma or mma.sync.",
        applies_when=(
            "Matrix products in fp16 or bf16 whose tiles are, or can be, staged in shared memory; "
            "dimensions in multiples of 16, or padded there."
        ),
        avoid_when=(
            "fp32: factors rounded once to TF32 keep 10 bits and miss its tolerance, split ones "
            "meet it (split_precision_products). Tiny or ragged matrices."
        ),
        side_effects=(
            "Accumulation order and input precision change; fragments need many registers."
        ),
        notes=(
            "Stage tiles in shared memory first (prepare, then compute): fragments loaded straight "
            "from global memory are bound by the load/store unit. 16x16x16 fragments, fp32 "
            "accumulators, a warp computes 32x32 or more. sm_80 and sm_89: mma.sync m16n8k16; "
            "sm_90: wgmma reaches half as much again; sm_100: tcgen05."
        ),
        parameters={"warp_tile": (32, 64), "tile": (128, 64)},
        sources=('CUDA C++ Programming Guide, "Warp Matrix Functions"',),
        conditions=(computes(*WITH_PRODUCTS), among("dtype", "float16", "bfloat16")),
    )

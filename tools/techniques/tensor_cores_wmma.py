"""tensor_cores_wmma: products of half types on the tensor cores."""

from __future__ import annotations

from .conditions import WITH_PRODUCTS, AtHand
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `tile` is a block's side of the result, `warp_tile` a warp's."""
    return Technique(
        name="tensor_cores_wmma",
        description="Compute matrix products on tensor cores through nvcuda::wmma or mma.sync.",
        applies_when=(
            "Matrix products in fp16, bf16 (or tf32 where the tolerance allows), dimensions "
            "multiples of 16."
        ),
        avoid_when=(
            "fp32 tolerance 1e-4: tf32 keeps 10 bits of mantissa and fails. Tiny or ragged "
            "matrices."
        ),
        side_effects=(
            "Accumulation order and input precision change; fragments need many registers."
        ),
        notes=(
            "Stage tiles in shared memory first (prepare, then compute): fragments loaded straight "
            "from global memory are bound by the load/store unit. 16x16x16 fragments, fp32 "
            "accumulators, a warp computes 32x32 or more."
        ),
        parameters={"warp_tile": (32, 64), "tile": (128, 64)},
        sources=('CUDA C++ Programming Guide, "Warp Matrix Functions"',),
        op_classes=WITH_PRODUCTS,
        unfit=_tolerance,
    )


def _tolerance(at_hand: AtHand) -> str | None:
    return "rounded factors miss the tolerance" if at_hand.task.dtype == "float32" else None

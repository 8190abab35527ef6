"""wgmma_products: four warps multiply tiles straight from shared memory (sm_90a)."""

from __future__ import annotations

from .conditions import ON_A_GPU, already, computes, equals
from .operators import WITH_PRODUCTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique.

    `tile_n` is the columns of one instruction, `stages` the number of tiles in flight.
    """
    return Technique(
        name="wgmma_products",
        description=(
            "Multiply with wgmma.mma_async: four warps together take tiles straight from shared "
            "memory, accumulators in registers, while the next tiles arrive."
        ),
        applies_when=(
            "sm_90a; products in fp16, bf16 or TF32 (or split) of 64 rows and more a block, whose "
            "tiles are staged in shared memory: mma.sync reaches about two thirds of Hopper's peak."
        ),
        avoid_when=(
            "Any other architecture (sm_80, sm_89: mma.sync; sm_100: tcgen05), small or ragged "
            "matrices."
        ),
        side_effects=(
            "128 threads in step; tiles in the swizzled layouts that descriptors name; many "
            "registers for accumulators."
        ),
        notes=(
            "wgmma.fence, then wgmma.mma_async.sync.aligned.m64n128k16 on 64-bit descriptors "
            "(address >> 4, leading and stride offsets, swizzle mode), commit_group, wait_group. "
            "For the 128-byte swizzle write 16-byte chunk c of row r at chunk c ^ (r % 8). "
            "fence.proxy.async after threads stored a tile, before wgmma reads it. A may come from "
            "registers, which suits split factors and attention."
        ),
        parameters={"tile_n": (128, 256, 64), "stages": (4, 3)},
        sources=(
            'PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions"',
            'NVIDIA Hopper Tuning Guide, "Tensor Cores"',
        ),
        conditions=(computes(*WITH_PRODUCTS), equals("capability", 9.0), ON_A_GPU),
        unfit=already(r"wgmma", "it multiplies with wgmma already"),
    )

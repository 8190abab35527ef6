"""split_precision_products: fp32 products on tensor cores, each factor as a sum of short parts."""

from __future__ import annotations

from .conditions import already, at_least, computes, equals
from .operators import WITH_PRODUCTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique.

    `products` is how many products of parts are added, `warp_tile` a warp's side.
    """
    return Technique(
        name="split_precision_products",
        description=(
            "Compute an fp32 product on tensor cores: each factor as a rounded part and the "
            "rounded rest (TF32, bf16 or scaled half), and the products of parts that matter added "
            "in fp32 (3xTF32, bf16x3, fp16x3)."
        ),
        applies_when=(
            "fp32 matrix products and convolutions that arithmetic or the load/store unit holds "
            "back: factors rounded once miss an fp32 tolerance, split ones keep it at several "
            "times the fp32 rate."
        ),
        avoid_when=(
            "Half types (one product is enough), products bound by DRAM, or K so short that "
            "splitting costs more than it saves."
        ),
        side_effects=(
            "Three to six products for one; both parts of each factor in shared memory or "
            "registers; the last bits differ."
        ),
        notes=(
            "big = round(x), small = round(x - big); add small * big', big * small', then big * "
            "big' into fp32 accumulators (4: small * small' too). TF32: cvt.rna.tf32.f32 and "
            "mma.sync m16n8k8, any range. Half: m16n8k16, twice TF32's rate, but above 65504 it "
            "overflows and the rest underflows: scale the rest by 2^11 into accumulators of its "
            "own. bf16: m16n8k16, any range, but two parts hold 16 bits: three parts (6 products) "
            "hold all 24. Split once, on the way into shared memory. Tensor cores truncate as they "
            "add: for K beyond a few thousand move the accumulators to plain fp32 sums now and "
            "then. sm_80 and sm_89: mma.sync; sm_90: wgmma is about twice as fast; sm_100: tcgen05."
        ),
        parameters={"products": (3, 4, 6), "warp_tile": (32, 64)},
        sources=(
            'Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while '
            'surpassing the FP32 theoretical peak performance" (IJHPCA, 2022)',
            'Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence '
            'Datatype For Higher-Precision Computations" (ARITH 2019)',
            'CUTLASS, example 27, "ampere_3xtf32_fast_accurate_tensorop_gemm"',
        ),
        conditions=(
            computes(*WITH_PRODUCTS),
            equals("dtype", "float32"),
            at_least("capability", 8.0),
        ),
        unfit=already(r"mma\.sync|wgmma|mma_sync", "the product is on tensor cores already"),
    )

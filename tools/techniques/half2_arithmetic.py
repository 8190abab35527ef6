"""half2_arithmetic: two half-precision values an instruction."""

from __future__ import annotations

from .conditions import among
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="half2_arithmetic",
        moves=("+fp16",),
        description=(
            "Process two fp16 or bf16 values per instruction with __half2 / __nv_bfloat162."
        ),
        applies_when=(
            "Elementwise or reduction kernels on half types whose arithmetic or memory requests "
            "limit."
        ),
        avoid_when="Data is fp32. Reductions need fp32 accumulators.",
        side_effects="Rounding as for half arithmetic; even sizes or a tail.",
        notes=(
            "Load as half2 (or 8 halves in a float4), use __hfma2 and friends; accumulate in float."
        ),
        sources=('NVIDIA Technical Blog, "Mixed-Precision Programming with CUDA 8" (2016)',),
        conditions=(among("dtype", "float16", "bfloat16"),),
    )

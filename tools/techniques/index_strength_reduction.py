"""index_strength_reduction: indices in 32 bits, advanced by additions, not divided."""

from __future__ import annotations

from .conditions import lacking
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="index_strength_reduction",
        description=(
            "Make index arithmetic cheap: 32-bit indices where sizes allow, divisions and modulos "
            "out of the loop or replaced by additions, a dimension of the grid for a dimension of "
            "the tensor."
        ),
        applies_when=(
            "The integer pipe or issue slots are busy with addresses: 64-bit multiplications, "
            "division and modulo for each element (the constants of task.cuh are long long)."
        ),
        avoid_when="Memory is the limit and the integer pipe is idle: nothing is gained.",
        side_effects="32-bit indices need tensors under 2^31 elements: check by static_assert.",
        notes=(
            "constexpr int N = int(DIM_N) after a static_assert; take row and column from "
            "blockIdx.y, blockIdx.z and threadIdx.x instead of i / C % H; keep a pointer and "
            "advance it by a stride; unsigned division by a constant compiles to a multiplication, "
            "of 32 bits in two instructions, of 64 in many. For a divisor known only at run time "
            "precompute multiplier and shift on the host (__umulhi)."
        ),
        sources=(
            'CUDA C++ Best Practices Guide, "Division Modulo Operations"',
            'Granlund and Montgomery, "Division by Invariant Integers using Multiplication" '
            "(PLDI 1994)",
        ),
        unfit=lacking(
            r"%|[^/*]/[^/*]|long long|int64_t|size_t", "its indices are cheap already"
        ),
    )

"""separable_pooling: windows of pooling and sums of neighbours in two passes, or sliding."""

from __future__ import annotations

from .conditions import OTHER_TASK, AtHand, computes
from .operators import POOLS, pools
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `outputs` is the number of neighbouring results of a thread."""
    return Technique(
        name="separable_pooling",
        description=(
            "Reduce overlapping windows along one axis first and reuse the partial results, or "
            "slide a window down a column, instead of reading every window whole."
        ),
        applies_when=(
            "Pooling, box filters and moving sums whose windows overlap (kernel larger than "
            "stride), or whose inputs are read once for each window."
        ),
        avoid_when=(
            "Windows do not overlap (kernel equals stride): then wide loads of each element once "
            "are all there is."
        ),
        side_effects=(
            "Registers or a strip of shared memory; for averages at the edges divisors as PyTorch "
            "counts them."
        ),
        notes=(
            "A thread makes several neighbouring outputs of a row or column: it loads their union "
            "once, keeps row results in registers and combines them down the column. Maximum and "
            "sum are separable; count_include_pad and ceil_mode decide the divisor; padding is "
            "-inf for a maximum; NaN must win as in PyTorch."
        ),
        parameters={"outputs": (4, 2, 8)},
        sources=(
            'Podlozhnyuk, "Image Convolution with CUDA" (NVIDIA, 2007)',
            'van Herk, "A fast algorithm for local minimum and maximum filters on rectangular '
            'and octagonal kernels" (Pattern Recognition Letters, 1992)',
        ),
        conditions=(computes(*POOLS, "unfold"),),
        unfit=_apart,
    )


def _apart(at_hand: AtHand) -> str | None:
    known = pools(at_hand.task)
    overlap = any(axis.taps > axis.stride for axes in known for axis in axes)
    return None if overlap or not known else OTHER_TASK

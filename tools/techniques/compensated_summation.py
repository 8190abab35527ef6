"""compensated_summation: sums in pairs, or with their error carried along."""

from __future__ import annotations

from .conditions import computes
from .operators import ROWS, SCANS, WITH_PRODUCTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="compensated_summation",
        description=(
            "Sum pairwise or with a compensation term (Kahan, two-sum), so that long sums or "
            "cheaper formats stay within the tolerance."
        ),
        applies_when=(
            "A faster form (one pass, half-precision products, a long serial chain, split sums) is "
            "refused by a little for rounding."
        ),
        avoid_when="The result passes already: this costs operations and gains no time by itself.",
        side_effects=(
            "Three more additions an element for Kahan; pairwise costs nothing but a tree."
        ),
        notes=(
            "Pairwise comes of itself: several accumulators a thread, then a shuffle tree. Kahan: "
            "y = x - c; t = s + y; c = (t - s) - y; s = t (nvcc without fast-math keeps it). "
            "Across lanes merge sums and compensations by two-sum. A float2 (high, low) "
            "accumulator is nearly as good as double, which is slow on all but the data-centre "
            "GPUs."
        ),
        sources=(
            'Higham, "The Accuracy of Floating Point Summation" (SIAM Journal on Scientific '
            "Computing, 1993)",
        ),
        conditions=(computes(*ROWS, *SCANS, *WITH_PRODUCTS),),
    )

"""predicated_tail: whole tiles run without checks, the rest once with them."""

from __future__ import annotations

from .conditions import lacking
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="predicated_tail",
        description=(
            "Split a loop or grid into whole tiles without bounds checks and one tail with them, "
            "or pad the staged tile with neutral values."
        ),
        applies_when=(
            "Bounds checks for each element take issue slots or keep the compiler from wide or "
            "hoisted loads; sizes are no multiple of the tile."
        ),
        avoid_when=(
            "Sizes are multiples at full dimensions: `if constexpr` on task.cuh's constants "
            "removes the check already."
        ),
        side_effects="Two copies of the loop body.",
        notes=(
            "constexpr bool whole = N % TILE == 0; for (tile = 0; tile < N / TILE; ++tile) "
            "body<false>; if (!whole) body<true>. In staged tiles write zeros (or -inf for a "
            "maximum) outside, so that the inner loop has no check. Select by predicate, do not "
            "branch around barriers or shuffles."
        ),
        sources=('CUDA C++ Best Practices Guide, "Branch Predication"',),
        unfit=lacking(r"\bif\b|\?", "it checks no bounds"),
    )

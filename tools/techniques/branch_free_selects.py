"""branch_free_selects: both sides of a short branch are computed and one is chosen."""

from __future__ import annotations

from .conditions import at_least
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="branch_free_selects",
        description=(
            "Replace short divergent branches by selects, min and max, or arithmetic on "
            "predicates; sort out long ones by warp."
        ),
        applies_when=(
            "Lanes of a warp go different ways on data (activations by case, clamps, table "
            "look-ups), each way a few instructions."
        ),
        avoid_when=(
            "A side is long or has loads that may not be made: then group equal cases into whole "
            "warps."
        ),
        side_effects="Both sides are computed.",
        notes=(
            "x > 0 ? a : b with plain expressions compiles to a select; fmaxf, fminf, copysignf, "
            "__saturatef; ballots and popcounts for counts over a warp; keep shuffles and barriers "
            "outside branches. Look at idle lanes before and after."
        ),
        sources=('CUDA C++ Best Practices Guide, "Branching and Divergence"',),
        conditions=(at_least("idle_lanes", 0.05),),
    )

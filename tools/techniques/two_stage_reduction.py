"""two_stage_reduction: blocks write partial results, a second kernel reduces those."""

from __future__ import annotations

from .conditions import AtHand, computes, no_atomics
from .operators import ROWS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `blocks_per_sm` is the number of blocks for each multiprocessor."""
    return Technique(
        name="two_stage_reduction",
        moves=("-atomics", "-idle_sms"),
        description=(
            "Write one partial result per block to the workspace and reduce those in a second "
            "small kernel."
        ),
        applies_when=(
            "A whole-tensor reduction through atomics on one address, or in a single block."
        ),
        avoid_when="Few elements: a second launch costs some microseconds.",
        side_effects="A workspace and a second launch; deterministic.",
        notes=(
            "Grid of a few blocks per SM with grid-stride loops in the first stage; one block in "
            "the second."
        ),
        parameters={"blocks_per_sm": (4, 2, 8)},
        sources=(
            'Harris, "Optimizing Parallel Reduction in CUDA" (NVIDIA Developer Technology, 2007)',
        ),
        conditions=(computes(*ROWS),),
        unfit=_no_partials,
    )


def _no_partials(at_hand: AtHand) -> str | None:
    return None if at_hand.seen.grid == (1, 1, 1) else no_atomics(at_hand)

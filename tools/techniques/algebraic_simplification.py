"""algebraic_simplification: what the formulas come to, with fewer operations or less to store."""

from __future__ import annotations

from .conditions import OTHER_TASK, AtHand
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="algebraic_simplification",
        description=(
            "Rewrite the task's mathematics: move scalings out of sums, merge linear operations, "
            "use identities, drop what cancels or what nothing reads, reorder products so that the "
            "smaller comes first."
        ),
        applies_when=(
            "Several operations in a row of which some are linear, constant, cancel, or reduce "
            "what was just widened (the sum of a product's rows is a product with a sum)."
        ),
        avoid_when=(
            "The identity holds only for special inputs, or changes rounding beyond the tolerance "
            "(cancellation far from zero)."
        ),
        side_effects="Other rounding; the kernel no longer mirrors the reference line by line.",
        notes=(
            "Write the whole as formulas over indices first. Sum over n of x W^T is (x) times the "
            "column sum of W; mean after a linear map is the map of the mean; a bias before a "
            "normalisation over the same axis cancels; exp(log x) = x; max pooling and increasing "
            "functions commute; scales go into the epilogue. Never rely on values of inputs: only "
            "on what always holds."
        ),
        sources=(
            'Jia et al., "TASO: Optimizing Deep Learning Computation with Automatic Generation '
            'of Graph Substitutions" (SOSP 2019)',
        ),
        unfit=_single_operation,
    )


def _single_operation(at_hand: AtHand) -> str | None:
    program = at_hand.task.program
    single = program is not None and len(program.nodes) <= 1
    return OTHER_TASK if single else None

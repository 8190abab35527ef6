"""recompute_instead_of_store: cheap values are computed again instead of stored and loaded."""

from __future__ import annotations

from .conditions import AtHand
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="recompute_instead_of_store",
        description=(
            "Compute intermediate values again where they are needed, instead of writing them to "
            "memory (or keeping them in registers) and reading them back."
        ),
        applies_when=(
            "An intermediate tensor or a spilled array costs more traffic than the few operations "
            "that make it from inputs that are read anyway."
        ),
        avoid_when=(
            "The value costs a reduction, a product or several special functions an element."
        ),
        side_effects="More arithmetic; fewer bytes, registers or launches.",
        notes=(
            "Typical: activations before a second pass, masks, exponentials in a softmax whose row "
            "is read twice, index tables. Count bytes saved over bandwidth against operations "
            "added over throughput."
        ),
        sources=(
            'Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear Memory Cost" '
            "(arXiv:1604.06174, 2016)",
        ),
        unfit=_nothing_between,
    )


def _nothing_between(at_hand: AtHand) -> str | None:
    spills = at_hand.metric("ptxas__spill_store_bytes") or 0.0
    alone = len(at_hand.profile.launches) == 1
    return "no intermediate value is stored" if alone and not spills else None

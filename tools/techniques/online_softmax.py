"""online_softmax: maximum and sum of a row in one pass."""

from __future__ import annotations

from .conditions import AtHand, computes
from .operators import ATTENTION, ROWS, SOFTMAXES
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="online_softmax",
        description=(
            "Compute the running maximum and the rescaled sum in one pass (Milakov and Gimelshein, "
            "2018)."
        ),
        applies_when=(
            "Softmax or log-sum-exp in which rows are too long to keep in registers: it saves one "
            "of three reads."
        ),
        avoid_when="Rows fit in registers: then a single read is possible anyway.",
        side_effects="One more exp per element where the maximum changes; safe numerically.",
        notes=(
            "Per thread (m, s): for x: n = max(m, x); s = s * exp(m - n) + exp(x - n); m = n. "
            "Combine pairs the same way in the shuffle reduction."
        ),
        sources=(
            'Milakov and Gimelshein, "Online normalizer calculation for softmax" '
            "(arXiv:1805.02867, 2018)",
        ),
        conditions=(computes(*SOFTMAXES, *ATTENTION), computes(*ROWS)),
        unfit=_in_registers,
    )


def _in_registers(at_hand: AtHand) -> str | None:
    cached = "cache_row_in_registers" in at_hand.applied
    return "the rows are in registers" if cached else None

"""Whether a technique's tries pass: by results of wider and narrower cases, free of states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PASSED, FAILED = 2.4, 0.6
"""Four tries in five pass, worth three tries: what is believed before any."""
CARRIED = 2.0
"""Tries that belief may be worth when it is carried to a narrower case."""
KEPT = 0.8
"""What is left of a try's weight with each later one of the same case: newer ones count more, so
that a false belief is outvoted by three."""
LOOKED_AT = 512
"""Results of a case, the newest: of more than these hardly any is of another run that matters."""
SAME_RUN = 0.5
"""What a result counts beside the next newer one of the same run."""
ALONE = -1
"""Run of a result that is a witness of its own."""


class Reliability(NamedTuple):
    """A Beta belief about passing."""

    passed: float = PASSED
    failed: float = FAILED

    @property
    def probability(self) -> float:
        """The chance that the next one passes."""
        return self.passed / (self.passed + self.failed)

    def carried(self) -> Reliability:
        """Return the belief with its strength capped."""
        scale = min(1.0, CARRIED / (self.passed + self.failed))
        return Reliability(self.passed * scale, self.failed * scale)


def believed(cases: Iterable[tuple[NDArray[np.bool_], NDArray[np.int32]]]) -> Reliability:
    """Return what to believe of the next try, from the widest case to the narrowest.

    Args:
        cases: of each, in the order in which tries were made, whether they passed, and which run
            tells it.
    """
    belief = Reliability()
    for case, runs in cases:
        newest = case[::-1][:LOOKED_AT]
        if not len(newest):
            continue
        worth = _witness(runs[::-1][:LOOKED_AT])
        # As much as newer ones are worth, so much older is a result.
        weights = worth * KEPT ** (np.cumsum(worth) - worth)
        start = belief.carried()
        belief = Reliability(
            start.passed + float(weights @ newest), start.failed + float(weights @ ~newest)
        )
    return belief


def _witness(runs: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return what each result counts, the newest first: those of a run that come after another
    count less and less."""
    order = np.argsort(runs, kind="stable")
    ordered = runs[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    begins = np.repeat(first, np.diff(np.r_[first, len(ordered)]))
    after = np.empty(len(runs), np.int64)
    after[order] = np.arange(len(runs)) - begins
    worth: NDArray[np.float64] = np.where(runs == ALONE, 1.0, SAME_RUN**after)
    return worth

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
LOOKED_AT = 40
"""Results of a case, the newest: what is left of older ones changes nothing."""


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


def believed(cases: Iterable[NDArray[np.bool_]]) -> Reliability:
    """Return what to believe of the next try, from the widest case to the narrowest.

    Args:
        cases: of each, in the order in which tries were made, whether they passed.
    """
    belief = Reliability()
    for case in cases:
        newest = case[::-1][:LOOKED_AT]
        if not len(newest):
            continue
        weights = KEPT ** np.arange(len(newest))
        start = belief.carried()
        belief = Reliability(
            start.passed + float(weights @ newest), start.failed + float(weights @ ~newest)
        )
    return belief

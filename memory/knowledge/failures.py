"""Whether a technique's tries pass: by technique, operator class and writer, whatever the state."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

PASSED, FAILED = 2.4, 0.6
"""Four tries in five pass, worth three tries: what is believed before any."""
CARRIED = 2.0
"""Tries that belief may be worth when it is carried to a narrower case: from the technique to the
operator class, from there to the writer."""
KEPT = 0.8
"""What is left of a try's weight with each later one of the same case: newer ones count more, so
that a false belief is outvoted by three."""


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


class Failures:
    """What passed and what failed, only ever added to.

    A writer's failures count for that writer: others hear of them as of one case among several.
    """

    def __init__(self) -> None:
        self._seen: dict[object, bool] = {}
        self._tallies: dict[tuple[str, ...], Reliability] = {}
        self._reasons: dict[tuple[str, str, str], Counter[str]] = {}

    def add(
        self, technique: str, op_class: str, writer: str, reason: str, passed: bool, key: object
    ) -> None:
        """Take one result; told again under the same key, it counts once."""
        if self._seen.get(key) is passed:
            return
        self._seen[key] = passed
        for case in _cases(technique, op_class, writer):
            before = self._tallies.get(case, Reliability(0.0, 0.0))
            self._tallies[case] = Reliability(
                KEPT * before.passed + passed, KEPT * before.failed + (not passed)
            )
        if not passed:
            self._reasons.setdefault((technique, op_class, writer), Counter())[reason] += 1

    def reliability(self, technique: str, op_class: str, writer: str) -> Reliability:
        """Return what to believe of the next try, from the widest case to the narrowest."""
        belief = Reliability()
        for case in _cases(technique, op_class, writer):
            tally = self._tallies.get(case, Reliability(0.0, 0.0))
            start = belief.carried()
            belief = Reliability(start.passed + tally.passed, start.failed + tally.failed)
        return belief

    def reasons(self, technique: str, op_class: str, writer: str) -> Counter[str]:
        """Return why tries failed, with how often."""
        return Counter(self._reasons.get((technique, op_class, writer), ()))


def _cases(technique: str, op_class: str, writer: str) -> tuple[tuple[str, ...], ...]:
    return (
        (technique, writer),
        (technique, op_class),
        (technique, op_class, writer),
    )

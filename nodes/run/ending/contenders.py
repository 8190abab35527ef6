"""Which kernel is confirmed next: the fastest, and after one that is wrong one less related to it.

A fault mostly came with one step of the way, and all that was made of it has the fault too. So the
ways to what failed are halved: next is the fastest kernel that shares no more than half of such a
way. What holds is announced, unless something faster that is not known to be wrong holds as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....harness.records.timings import SIMULATED_RESOLUTION
from ...common.history.steps import Way


class Contenders:
    """The kernels of a run that may be announced.

    Args:
        ways: to each of them, the fastest first; each has a step and a time.
    """

    def __init__(self, ways: Sequence[Way]) -> None:
        self._left = list(ways)
        self._wrong: list[tuple[Way, str]] = []
        self._right: list[Way] = []

    def next(self) -> Way | None:
        """Return the way to the kernel to be confirmed next, once; None where none is worth it."""
        worth = [way for way in self._left if self._is_worth_it(way)]
        unlike = [way for way in worth if all(_is_unlike(way, wrong) for wrong, _ in self._wrong)]
        chosen = next(iter(worth if self._right else unlike or worth), None)
        if chosen is not None:
            self._left.remove(chosen)
        return chosen

    def is_wrong(self, way: Way, reason: str) -> None:
        """Note that a kernel did not pass again, and why."""
        self._wrong.append((way, reason))

    def blamed(self) -> list[tuple[Way, str]]:
        """Return the ways whose last step is to blame, and why: those from a kernel that held, or
        from the initial one, to a wrong one. Of others nobody knows which step it was."""
        right = [_name(way) for way in self._right]
        return [
            (way, reason) for way, reason in self._wrong
            if len(way) == 1 or _name(way[:-1]) in right
        ]  # fmt: skip

    def holds(self, way: Way) -> None:
        """Note that a kernel held: only what is faster is asked for from now on."""
        self._right.append(way)

    def _is_worth_it(self, way: Way) -> bool:
        if any(_shared(way, wrong) == len(wrong) for wrong, _ in self._wrong):
            return False  # Made of one that is wrong.
        enough = _time(way) * (1 + SIMULATED_RESOLUTION)
        return not self._right or enough < _time(self._right[-1])


def _is_unlike(way: Way, wrong: Way) -> bool:
    return _shared(way, wrong) <= len(wrong) // 2


def _shared(way: Way, other: Way) -> int:
    """Return how many steps two ways have in common at their beginning."""
    pairs = zip(way, other, strict=False)
    return next(
        (at for at, (a, b) in enumerate(pairs) if a.child_sha256 != b.child_sha256),
        min(len(way), len(other)),
    )


def _name(way: Way) -> str | None:
    return way[-1].child_sha256


def _time(way: Way) -> float:
    return way[-1].microseconds_after or 0.0

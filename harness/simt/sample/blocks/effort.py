"""How much of a call is simulated: warp instructions, which its launches share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

CALL_INSTRUCTIONS = 160_000_000
"""Warp instructions that the launches of one call share; none gets more of them than it can use."""
LAUNCH_INSTRUCTIONS = 5_000_000
"""What a launch with the full effort takes at most, about."""
REPEAT_INSTRUCTIONS = 40_000_000
"""What all launches together take that are like earlier ones."""
MOST_INSTRUCTIONS = 1_000_000_000
"""Warp instructions, or about a minute, after which a call has no profile: a launch takes a few
blocks, whatever these cost."""


class Overspent(Exception):
    """The launches of a call are too much work to be simulated; the message says so."""


@dataclass(frozen=True)
class Effort:
    """Warp instructions for one launch, by what for."""

    sample: int = 1_500_000
    """That one sample, or the group of an SM, should stay under."""
    uneven: int = 12_000_000
    """Of one random sample where blocks differ much in their work."""
    complete: int = 2_000_000
    """Up to which all blocks are run."""
    races: int = 200_000
    """Of one look for races."""

    def part(self, share: float) -> Effort:
        """Return a part of each."""
        parts = (self.sample, self.uneven, self.complete, self.races)
        return Effort(*(max(1, int(share * part)) for part in parts))


FULL = Effort()


class Shares:
    """What is left of a call's instructions, for so many launches that are still to come."""

    def __init__(self, likes: Iterable[int]) -> None:
        """Take for each launch the place of the first like it: its own where none is earlier."""
        places = list(enumerate(likes))
        self._first = sum(place == like for place, like in places)
        self._repeats = len(places) - self._first
        self._left = CALL_INSTRUCTIONS
        self.spent = 0

    def effort(self) -> Effort:
        """Return what the next launch that is like no earlier one may take."""
        each = max(0, self._left) / max(1, self._first)
        return FULL.part(min(1.0, each / LAUNCH_INSTRUCTIONS))

    @property
    def repeat(self) -> int:
        """Return what each launch may take that is like an earlier one."""
        return min(FULL.complete, REPEAT_INSTRUCTIONS // max(1, self._repeats))

    def take(self, instructions: int, *, first: bool) -> None:
        """Note what a launch took. Raises Overspent."""
        self.spent += instructions
        if first:
            self._first -= 1
            self._left -= instructions
        if self.spent > MOST_INSTRUCTIONS:
            raise Overspent(
                f"a few blocks of each launch up to this one are {self.spent / 1e6:.0f} million "
                f"warp instructions, over the limit of {MOST_INSTRUCTIONS / 1e6:.0f} for one call: "
                "its time needs a real GPU"
            )

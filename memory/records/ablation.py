"""What of its surroundings a run does without."""

from __future__ import annotations

from typing import Literal, NamedTuple

Memory = Literal["live", "frozen", "seed", "off", "shuffled"]
"""What a run has of a knowledge base: all, also what it learns itself; what was there when it
began; the seed's priors alone; nothing; or what was there, with outcomes dealt anew among tries and
each state told of as another."""


class Ablation(NamedTuple):
    """What of its surroundings a run does without: nothing, unless somebody asks for it."""

    memory: Memory = "live"
    seed: int = 0
    """Says how outcomes are dealt and states told of, where memory is shuffled."""
    counters: bool = True
    """Whether agents know more of a kernel's run than its time."""
    fresh: bool = False
    """Whether it evaluates all itself, whatever other runs of this machine found."""
    shared: str = ""
    """Folder, seen from the run's own, in which it shares what it finds with those that it is
    compared with, each charged with all; empty: the machine's cache, and nobody is charged."""

WHOLE = Ablation()
"""Nothing is left out."""

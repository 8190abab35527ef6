"""What a file of this folder says of its technique."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...memory.records.conditions import Condition
from ...memory.records.optimizations import Optimization
from ..rewriting.records import Apply
from ..rewriting.rewrite import Rewrite
from .conditions import Unfit

NEUTRAL_STRENGTH = 0.5
"""Observations that the expectation of no gain is worth, where no prior says more."""


@dataclass(frozen=True, kw_only=True)
class Technique:
    """One way to make a kernel faster: what an engineer should know, and how it is written."""

    name: str
    """That of its file."""
    description: str
    """What is changed in the code."""
    applies_when: str
    avoid_when: str
    side_effects: str
    notes: str
    """How to implement it."""
    parameters: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Values by name, the default first: those that prompts show, that the built-in rewrite takes
    where there is one, and that evidence is kept under."""
    formerly: Mapping[str, str] = field(default_factory=dict)
    """Today's name of a parameter, by the name under which older evidence has it."""
    sources: tuple[str, ...] = ()
    """Public documents that describe it."""
    change: Apply | None = None
    """The built-in rewrite, a pure function; without one a model must write it."""
    conditions: tuple[Condition, ...] = ()
    """All of these must be so of a kernel, or not known."""
    moves: tuple[str, ...] = ()
    """What it should do to a profile where it works: dimensions of the signature, each after `-`
    where it lowers them and `+` where it raises them."""
    precondition: str = ""
    """Of one that the tests forbid but for this condition: told instead of its description."""
    unfit: Unfit | None = None
    """For what no condition can say: returns why it cannot act on a kernel in a few words, None
    where nothing says so."""

    @property
    def rewrite(self) -> Rewrite | None:
        """The built-in rewrite with the technique's own parameters; None where there is none."""
        return Rewrite(self.name, self.change, self.parameters) if self.change else None

    @property
    def card(self) -> Optimization:
        """What the knowledge base and prompts say of it, with a neutral prior."""
        return Optimization(
            technique=self.name,
            description=self.description,
            applies_when=self.applies_when,
            avoid_when=self.avoid_when,
            side_effects=self.side_effects,
            notes=self.notes,
            parameters={name: list(values) for name, values in self.parameters.items()},
            conditions=self.conditions,
            prior_log_gain=0.0,
            prior_strength=NEUTRAL_STRENGTH,
        )

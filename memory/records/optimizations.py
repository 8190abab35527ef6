"""Optimizations: techniques under a state, with what to know before trying them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ...harness.records.identity import sha256_of_json
from ...harness.records.record import Record
from .conditions import Condition
from .identity import Author, as_first_stored


class MacroStep(Record):
    """One technique of a sequence that is chosen as one."""

    technique: str
    """What is applied."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """With which values; those left out take their default."""


class Optimization(Record):
    """A technique under a state, with what an engineer should know before trying it."""

    technique: str
    """Its name, snake_case."""
    description: str
    """What is done to the code."""
    applies_when: str
    """When it is worth trying."""
    avoid_when: str
    """When it does harm."""
    side_effects: str
    """What it costs besides."""
    notes: str
    """How to implement it."""
    parameters: dict[str, list[Any]] = Field(default_factory=dict)
    """Values worth trying, by parameter name; the first is the default."""
    conditions: tuple[Condition, ...] = ()
    """All of these must be so of a kernel, or not known: else it is not proposed."""
    steps: tuple[MacroStep, ...] = ()
    """Of a macro, the techniques that are applied one after the other; empty for one technique."""
    prior_log_gain: float
    """Expected natural logarithm of the speedup before any evidence."""
    prior_strength: float = Field(gt=0)
    """How many observations the prior is worth."""
    prior_evidence: tuple[str, ...] = ()
    """Ids of the evidence that the prior was drawn from, so that none of it counts twice."""


class StateOptimization(Record):
    """An optimization put under a state by parameter update; replaces the seed's of that name."""

    state_id: str
    optimization: Optimization
    device_kind: str
    """Where it was learned: simulated experience never changes what measured devices expect."""
    revision: int = Field(ge=1)
    """The highest revision counts; equal ones are ordered by content, so that merging commutes."""
    author: Author

    @property
    def id(self) -> str:
        """Identity: its content."""
        return sha256_of_json(["state_optimization", as_first_stored(self)])

    @property
    def rank(self) -> tuple[int, str, str]:
        """What counts over what, the higher over the lower; ids of evidence come last, for they
        depend on the names of runs."""
        content = as_first_stored(self)
        del content["optimization"]["prior_evidence"]
        return self.revision, sha256_of_json(content), self.id

"""How a step came about and who did what in it, for who reads the run afterwards."""

from __future__ import annotations

from ...harness.records.record import Record
from .choices import Proposal
from .lowering import Attempt


class Said(Record):
    """What one agent said on the way to a step."""

    role: str
    """Which agent."""
    text: str
    """Its words."""
    author: str
    """Who answered for it: `builtin`, or a model's name."""


class StepAccount(Record):
    """How a step came about: an artifact of the run, for who reads it afterwards."""

    state_name: str
    """What the state of the parent is called."""
    said: tuple[Said, ...]
    """In the order in which the agents spoke."""
    proposals: tuple[Proposal, ...] = ()
    """Techniques on the table."""
    success_probability: float | None = None
    """Of the technique chosen, that a candidate compiles and verifies; as the policy had it."""
    attempts: tuple[Attempt, ...] = ()
    """Every try at writing it, failures too."""


class StepAuthors(Record):
    """Who did what in one step."""

    iteration: int
    """From 0."""
    rollout: int
    """From 0."""
    step: int
    """From 0."""
    technique: str
    """What was tried."""
    state: str
    """Who said which state the kernel was in."""
    choice: str
    """Who chose the technique."""
    source: str
    """Who wrote it into the code."""

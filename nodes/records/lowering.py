"""How a chosen technique is written into code: tries, tools called, what came of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import (
    Field,
)

from ...harness.records.outcomes import Outcome
from ...harness.records.record import Record
from .kernels import KernelPoint


class Attempt(Record):
    """One try at writing the chosen technique, and what came of it."""

    number: int
    """0 for the first try, 1.. for repairs."""
    source_sha256: str | None
    """Artifact of what was written; None where nothing was."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Values that the technique was given."""
    author: str
    """Who wrote it."""
    outcome: Outcome | None = None
    """None while it is under way; stays None when nothing could be written."""
    reason: str = ""
    """Why it failed, or what the writer said."""
    prompt_sha256: str | None = None
    """Artifact of the prompt that a model wrote it from."""
    reply_sha256: str | None = None
    """Artifact of the model's raw reply."""


class ToolRound(Record):
    """Tools that the kernel writer had called before it gave an attempt."""

    attempt: int
    """Number of the attempt that it works on."""
    reply_sha256: str
    """Artifact of the model's raw reply: which tools, with what."""
    answers_sha256: str | None = None
    """Artifact of what they answered, a JSON list; None before they did."""
    evaluated: tuple[str, ...] = ()
    """Artifacts of the drafts that they had evaluated, the writer's own file left out."""


def evaluated_sources(attempts: Iterable[Attempt], rounds: Iterable[ToolRound]) -> frozenset[str]:
    """Return the artifacts of all that a lowering has had evaluated, or is about to."""
    written = (attempt.source_sha256 for attempt in attempts)
    drafts = (sha256 for each in rounds for sha256 in each.evaluated)
    return frozenset((*filter(None, written), *drafts))


class LoweringResult(Record):
    """What lowering made of the chosen technique."""

    applied: bool
    """False when no source could be written: no evaluation was spent."""
    outcome: Outcome
    """Of the last attempt."""
    reason: str = ""
    """Why it failed."""
    point: KernelPoint | None = None
    """The child, when it passed."""
    source_sha256: str | None = None
    """Artifact of the last attempt."""
    evaluation_key: str | None = None
    """Of its evaluation in the run's store."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Values that the technique was given."""
    repairs: int = 0
    """Attempts after the first."""
    author: str = "builtin"
    """Who wrote the last attempt."""
    prompt_sha256: str | None = None
    """Artifact of the prompt that a model wrote it from."""
    attempts: tuple[Attempt, ...] = ()
    """Every try at writing it; none in a run that an earlier version began."""
    drafts: tuple[str, ...] = ()
    """Artifacts of what a writer's tools had evaluated before."""

    @property
    def sources(self) -> frozenset[str]:
        """Artifacts of all that was written on the way, drafts too."""
        written = (attempt.source_sha256 for attempt in self.attempts)
        return frozenset((*filter(None, written), *self.drafts))

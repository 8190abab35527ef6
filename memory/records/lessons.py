"""Lessons in words, and their withdrawal."""

from __future__ import annotations

import math
from typing import Literal

from ...harness.records.identity import sha256_of_json
from ...harness.records.record import Record
from .conditions import Condition
from .identity import Author, as_first_stored

LessonKind = Literal[
    "correction", "condition", "new_state", "composite", "deprecation", "observation"
]


READ_OF_A_LESSON = ("created", "contested", "supporting", "opposing")
"""Fields of a lesson that are filled in when it is read."""


class Lesson(Record):
    """What parameter update wrote in words after gap analysis, with what it rests on."""

    text: str
    kind: LessonKind
    technique: str | None = None
    """For a composite, the techniques in order joined by ` then `."""
    state: str | None = None
    op_class: str | None = None
    """Class of operation it was learned on; None speaks of all."""
    conditions: tuple[Condition, ...] = ()
    """It speaks of kernels of which none of these is known not to be so."""
    claimed_log_gain: float | None = None
    """What the lesson says to expect; later evidence of the other sign makes it contested. A
    deprecation without one says that the technique breaks kernels: a pass contests it."""
    evidence: tuple[str, ...] = ()
    """Ids of the evidence it rests on."""
    device_kind: str
    """Where it was learned: simulated, cuda or deferred."""
    author: Author
    run: str
    iteration: int
    created: int = 0
    """Sequence number in this knowledge base; filled in when read, not part of the identity."""
    contested: bool = False
    """Later evidence disagrees; filled in when read, not part of the identity."""
    supporting: int = 0
    """Rows of evidence that agree with it; filled in when read, not part of the identity."""
    opposing: int = 0
    """Rows of evidence that disagree; filled in when read, not part of the identity."""

    @property
    def id(self) -> str:
        """Identity: its content."""
        content = as_first_stored(self)
        for name in READ_OF_A_LESSON:
            content.pop(name, None)
        if self.op_class is None:
            del content["op_class"]  # Older lessons keep their id.
        return sha256_of_json(["lesson", content])

    @property
    def key(self) -> tuple[object, ...]:
        """What lessons are merged by: what they speak of, under which conditions."""
        conditions = tuple(sorted(map(str, self.conditions)))
        return self.technique, self.op_class, conditions, self.device_kind == "simulated"

    @property
    def order(self) -> tuple[str | int | float, ...]:
        """What lessons are sorted by: what they say, for ids depend on the names of runs."""
        return (
            self.state or "",
            self.technique or "",
            self.op_class or "",
            self.kind,
            self.iteration,
            self.text,
            self.device_kind,
            self.author,
            -math.inf if self.claimed_log_gain is None else self.claimed_log_gain,
        )


class Withdrawal(Record):
    """A lesson that does not stand: nobody reads it from now on, until this is reverted."""

    lesson: str
    """Its id."""
    newest: int = 0
    """Newest sequence number then, so that what stands again can be withdrawn again."""

    @property
    def id(self) -> str:
        """Identity: its content."""
        again = [self.newest] if self.newest else []
        return sha256_of_json(["withdrawal", self.lesson, *again])

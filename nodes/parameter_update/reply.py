"""What a model replies as parameter update."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...memory.records.conditions import Comparison
from ..common.replies import Line, Reply


class ModelLesson(Reply):
    """One lesson for later runs, on other kernels."""

    kind: Literal["correction", "condition", "composite", "observation"]
    """correction: an expectation was wrong. condition: when it works or fails. composite:
    techniques that pay in this order. observation: anything else worth knowing."""
    techniques: tuple[str, ...] = Field(min_length=1, max_length=4)
    """One; for a composite, those of its steps in order."""
    evidence: tuple[str, ...] = Field(min_length=1, max_length=12)
    """Ids of the steps it rests on, as listed; for a composite in order."""
    text: Line = Field(min_length=1)
    """What to know before trying it; one to three sentences, without gains: the measured ones are
    added."""


class TechniqueCard(Reply):
    """What an engineer should know before trying a technique, learned here."""

    technique: str
    description: Line = ""
    """What is changed in the code, as the file that gained has it; empty: as said so far."""
    applies_when: Line = Field(min_length=1)
    avoid_when: Line = Field(min_length=1)
    side_effects: Line = ""
    notes: Line = ""


class Requirement(Reply):
    """What must be so of a kernel for a technique to be tried on it; a machine checks it."""

    feature: str
    """A name of the list of facts."""
    comparison: Comparison
    """at_least and at_most compare numbers; equals a number or a word; among and lacks say that the
    fact has one, or none, of several words."""
    value: float | str | tuple[str, ...]


class Tuning(Reply):
    """Values of a parameter, in the order worth trying."""

    name: str
    values: tuple[int, ...] = Field(min_length=1, max_length=4)


class PolicyEdit(Reply):
    """One change of what later choices read."""

    action: Literal["revise", "macro", "deprecate", "rename_state", "join_states", "split_state"]
    """revise an entry (conditions, notes, parameters, factor); macro: techniques to be chosen as
    one, in order; deprecate: not to be tried again on such tasks; states: name a found one better,
    join found ones that are one situation, split one by a condition."""
    techniques: tuple[str, ...] = Field(default=(), max_length=4)
    """One; for a macro those of its steps in order; none for states."""
    evidence: tuple[str, ...] = Field(min_length=1, max_length=16)
    """Ids of the rows that bear it out, as listed; for a macro its steps in order."""
    reason: Line = Field(min_length=1)
    """What they show; one sentence."""
    conditions: tuple[Requirement, ...] = Field(default=(), max_length=3)
    notes: Line = ""
    """What to know when writing it; empty: nothing new."""
    parameters: tuple[Tuning, ...] = Field(default=(), max_length=3)
    factor: float = Field(default=1.0, ge=0.78, le=1.28)
    """By which the listed gain (time before over after) was wrong; 1 where it was not."""
    here_alone: bool = False
    """Whether a revision is for this state alone."""
    states: tuple[str, ...] = Field(default=(), max_length=4)
    """Of a join, those joined and last the one that remains; else the one meant."""
    name: Line = ""
    """Of a state renamed or split off."""
    description: Line = ""
    """Of a state renamed or split off."""


class KnowledgeNotes(Reply):
    """Reply of parameter update."""

    lessons: tuple[ModelLesson, ...] = Field(max_length=10)
    cards: tuple[TechniqueCard, ...] = Field(default=(), max_length=6)
    """Only for techniques asked for."""
    edits: tuple[PolicyEdit, ...] = Field(default=(), max_length=6)
    """What the evidence listed calls for; one that it does not bear out is refused."""

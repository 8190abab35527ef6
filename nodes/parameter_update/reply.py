"""What a model replies as parameter update."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

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


class KnowledgeNotes(Reply):
    """Reply of parameter update."""

    lessons: tuple[ModelLesson, ...] = Field(max_length=10)
    cards: tuple[TechniqueCard, ...] = Field(default=(), max_length=6)
    """Only for techniques asked for."""

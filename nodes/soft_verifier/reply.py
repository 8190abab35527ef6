"""What a model replies as soft verifier."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..common.replies import Reply


class Objection(Reply):
    """One reason why a kernel's result should not be announced."""

    kind: Literal["omitted", "hard_coded", "delegated", "wrong_semantics", "lower_precision"]
    quote: str = Field(min_length=1, max_length=400)
    """The line of the file that it rests on, copied exactly, without its number."""
    explanation: str = Field(min_length=1, max_length=1000)
    """What is wrong there."""
    check: str = Field(min_length=1, max_length=1000)
    """How a person can check it: an input with a wrong result, or the step of the reference that
    has no counterpart."""


class SoftVerdict(Reply):
    """Reply of the soft verifier."""

    verdict: Literal["accept", "veto"]
    objections: tuple[Objection, ...] = Field(default=(), max_length=8)
    """Empty for `accept`; at least one for `veto`."""
    summary: str = Field(default="", max_length=600)
    """What the file does, in a sentence."""

"""What a model replies as soft verifier."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...tools.wording.listing import line_of
from ..common.replies import Reply, checked


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


def verdict_on(source: str) -> type[SoftVerdict]:
    """Return the form of a verdict on one source: its quotes must be lines of that source."""

    def can_be_checked(verdict: SoftVerdict) -> None:
        if verdict.verdict == "accept":
            return
        if not verdict.objections:
            raise ValueError("a veto needs at least one objection that a person can check")
        for objection in verdict.objections:
            if line_of(source, objection.quote) is None:
                raise ValueError(
                    f"no line of the file reads `{objection.quote[:120]}`: quote a line exactly "
                    "as it stands there, or accept"
                )

    return checked(SoftVerdict, can_be_checked)


def objection_text(objection: Objection, source: str) -> str:
    """Return an objection on one line: kind, place, what is wrong, how to check it."""
    kind = objection.kind.replace("_", " ")
    line = line_of(source, objection.quote)
    quote = " ".join(objection.quote.split())
    explained = " ".join(objection.explanation.split())
    check = " ".join(objection.check.split())
    return f"{kind}, line {line} `{quote}`: {explained} (check: {check})"

"""What a model replies as soft verifier."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...harness.records.tasks import Task
from ...harness.task.claims import (
    MOST_PLACES,
    MOST_TENSORS,
    ClaimedInput,
    Fill,
    Place,
    require_claimable,
)
from ...tools.wording.listing import line_of
from ..common.replies import Reply, checked
from ..records.reviews import Objected

NEEDS_NO_INPUT = "delegated"
"""The kind of objection that no input would show."""


class ClaimedPlace(Reply):
    """Elements of a tensor that hold one value."""

    index: tuple[int | None, ...] = Field(max_length=8)
    """A number for each axis of the shape at the smaller dimensions; null: all along it."""
    value: float


class ClaimedTensor(Reply):
    """What one tensor of the input holds."""

    tensor: str
    """Its name in the signature of launch."""
    kind: Literal["own", "normal", "uniform", "constant"]
    """own: as get_inputs() gives it; normal: mean, deviation; uniform: low, high; constant."""
    first: float = 0.0
    """The mean, the low end, or the value."""
    second: float = 1.0
    """The deviation, or the high end."""
    places: tuple[ClaimedPlace, ...] = Field(default=(), max_length=MOST_PLACES)
    """Elements that hold something else."""


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
    input: tuple[ClaimedTensor, ...] = Field(default=(), max_length=MOST_TENSORS)
    """The input with a wrong result, which is run; tensors left out hold their own values. Empty
    for `delegated` only."""

    @property
    def claim(self) -> ClaimedInput | None:
        """The claimed input; None where none is named."""
        if not self.input:
            return None
        return ClaimedInput(
            tensors=tuple(
                Fill(
                    tensor=each.tensor,
                    kind=each.kind,
                    first=each.first,
                    second=each.second,
                    places=tuple(
                        Place(index=place.index, value=place.value) for place in each.places
                    ),
                )
                for each in self.input
            )
        )


class SoftVerdict(Reply):
    """Reply of the soft verifier."""

    verdict: Literal["accept", "veto"]
    objections: tuple[Objection, ...] = Field(default=(), max_length=8)
    """Empty for `accept`; at least one for `veto`."""
    summary: str = Field(default="", max_length=600)
    """What the file does, in a sentence."""


def verdict_on(source: str, task: Task) -> type[SoftVerdict]:
    """Return the form of a verdict on one source: its quotes must be lines of that source, and its
    inputs some that the task's rules allow."""

    def can_be_checked(verdict: SoftVerdict) -> None:
        if verdict.verdict == "accept":
            return
        if not verdict.objections:
            raise ValueError("a veto needs at least one objection that can be checked")
        for objection in verdict.objections:
            if line_of(source, objection.quote) is None:
                raise ValueError(
                    f"no line of the file reads `{objection.quote[:120]}`: quote a line exactly "
                    "as it stands there, or accept"
                )
            claim = objection.claim
            if claim is not None:
                require_claimable(task, claim)
            elif objection.kind != NEEDS_NO_INPUT:
                raise ValueError(
                    f"{objection.kind}: name in `input` what the tensors hold where the result is "
                    "wrong; it is run. Where you can name none, accept"
                )

    return checked(SoftVerdict, can_be_checked)


def objections_of(verdict: SoftVerdict, source: str) -> tuple[Objected, ...]:
    """Return what a verdict holds against a source; nothing where it accepts."""
    if verdict.verdict == "accept":
        return ()
    return tuple(
        Objected(
            said=objection_text(objection, source),
            quote=" ".join(objection.quote.split()),
            claim=objection.claim,
        )
        for objection in verdict.objections
    )


def objection_text(objection: Objection, source: str) -> str:
    """Return an objection on one line: kind, place, what is wrong, how to check it."""
    kind = objection.kind.replace("_", " ")
    line = line_of(source, objection.quote)
    quote = " ".join(objection.quote.split())
    explained = " ".join(objection.explanation.split())
    check = " ".join(objection.check.split())
    return f"{kind}, line {line} `{quote}`: {explained} (check: {check})"

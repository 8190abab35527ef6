"""What a model replies as optimization selector."""

from __future__ import annotations

from pydantic import Field

from ..common.replies import Line, Reply, checked
from ..records.choices import Proposal


class Selection(Reply):
    """Reply of the optimization selector."""

    technique: str
    """One of the proposals, by name; `stop` where none of them can gain."""
    reason: Line = Field(min_length=1)
    """Why this one now; one sentence."""


STOP = "stop"
"""What a model answers where nothing proposed can gain; no technique may be called so."""


def selection_among(proposals: tuple[Proposal, ...]) -> type[Selection]:
    """Return the form of a choice: the name of a proposal, or `stop`."""
    names = [proposal.technique for proposal in proposals]

    def check(selection: Selection) -> None:
        if selection.technique not in (*names, STOP):
            raise ValueError(
                f"{selection.technique[:80]} was not proposed: choose one of {', '.join(names)}, "
                f"or {STOP}"
            )

    return checked(Selection, check)

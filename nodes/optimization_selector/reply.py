"""What a model replies as optimization selector."""

from __future__ import annotations

from pydantic import Field

from ..common.replies import Line, Reply


class Selection(Reply):
    """Reply of the optimization selector."""

    technique: str
    """One of the proposals, by name; `stop` where none of them can gain."""
    reason: Line = Field(min_length=1)
    """Why this one now; one sentence."""

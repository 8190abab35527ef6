"""What a model replies as state selector."""

from __future__ import annotations

from pydantic import Field

from ..common.replies import Line, Reply


class StateMatch(Reply):
    """Reply of the state selector."""

    state: str
    """Id of the known state that fits, or `new`."""
    name: Line = Field(default="", max_length=80)
    """Only for `new`: a name of a few words that fits other kernels in this situation too."""
    description: Line = ""
    """Only for `new`: what marks the situation, and what helps or does not; one or two
    sentences."""
    reason: Line = Field(min_length=1)
    """Why this state and not the next best; one sentence."""

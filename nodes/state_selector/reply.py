"""What a model replies as state selector."""

from __future__ import annotations

from pydantic import Field

from ...memory.records.states import PerformanceState
from ..common.replies import Line, Reply, checked


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


NEW = "new"


def match_among(near: list[PerformanceState], names: frozenset[str]) -> type[StateMatch]:
    """Return the form of a match: the id of a state shown, or a new state with its own name."""
    ids = {known.id for known in near}

    def check(match: StateMatch) -> None:
        if match.state != NEW:
            if match.state not in ids:
                raise ValueError(
                    f"{match.state[:80]} is none of the states listed: give one of "
                    f"{', '.join([*sorted(ids), NEW])}"
                )
        elif not (match.name and match.description):
            raise ValueError("a new state needs a name and a description")
        elif match.name in names:
            raise ValueError(f"a state is called {match.name} already: give its id, or a new name")

    return checked(StateMatch, check)

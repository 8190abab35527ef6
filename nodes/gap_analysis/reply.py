"""What a model replies as performance-gap analysis."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from ...memory.records.evidence import Step
from ..common.history.sequences import chain_of
from ..common.replies import Line, Reply, checked
from ..records.gradient import Gap


class Cause(Reply):
    """Why measurement and expectation agree or not, for one gap."""

    gap: int = Field(ge=1)
    """Its number in the list."""
    cause: Line = Field(min_length=1)
    """What in the code or the profile explains it; one or two sentences."""
    condition: Line = ""
    """How to tell beforehand, from a profile or the code, whether another kernel would do the same;
    empty where that is not known."""


class Chain(Reply):
    """Steps of one rollout, each on the kernel of the one before, that matter in this order."""

    evidence: tuple[str, ...] = Field(min_length=2, max_length=4)
    """Ids of the steps, in order."""
    cause: Line = Field(min_length=1)
    """What the earlier steps prepare for the later."""


class GapCauses(Reply):
    """Reply of performance-gap analysis."""

    causes: tuple[Cause, ...] = Field(max_length=16)
    sequences: tuple[Chain, ...] = Field(default=(), max_length=4)
    """Only those that the list lacks; usually none."""
    unordered: tuple[int, ...] = Field(default=(), max_length=16)
    """Numbers of listed sequences that gained, but not because of their order: left out."""


def causes_of(gaps: Sequence[Gap], steps: Sequence[Step]) -> type[GapCauses]:
    """Return the form of causes: of gaps that there are, and sequences that happened."""

    def check(reply: GapCauses) -> None:
        for cause in reply.causes:
            if cause.gap > len(gaps):
                raise ValueError(f"there is no gap {cause.gap}: the list has {len(gaps)}")
        for number in reply.unordered:
            if not 1 <= number <= len(gaps) or gaps[number - 1].kind != "sequence":
                raise ValueError(f"gap {number} is no sequence of the list")
        for chain in reply.sequences:
            chain_of(chain.evidence, steps)

    return checked(GapCauses, check)

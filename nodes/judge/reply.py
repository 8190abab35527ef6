"""What a model replies as Judge: exactly one diagnosis and hint, or one bottleneck and method."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import Field

from ...harness.records.profiles import Bottleneck
from ..common.replies import NAME, Line, Reply, checked


class Correction(Reply):
    """Reply of the Judge on a candidate that failed."""

    diagnosis: Line = Field(min_length=1)
    """The one cause of the failure, with the line it is on."""
    hint: Line = Field(min_length=1)
    """The smallest change that mends it."""


class Optimisation(Reply):
    """Reply of the Judge on a candidate that is right."""

    bottleneck: Bottleneck
    """What holds the kernel back most: one."""
    evidence: tuple[str, ...] = Field(max_length=6)
    """Names of the counters shown that say so."""
    method: str = Field(pattern=NAME, max_length=60)
    """The one optimization to apply, in snake_case."""
    plan: Line = Field(min_length=1)
    """How to apply it to this file: which lines, which sizes."""


def optimisation_on(counters: Collection[str]) -> type[Optimisation]:
    """Return the form of an optimisation whose evidence is among the counters shown."""

    def rests_on_them(reply: Optimisation) -> None:
        if counters and not reply.evidence:
            raise ValueError("name at least one of the counters shown as evidence")
        for name in reply.evidence:
            if name not in counters:
                raise ValueError(f"{name[:120]} is none of the counters shown")

    return checked(Optimisation, rests_on_them)

"""What a model replies as state extractor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from pydantic import Field

from ...harness.records.profiles import Bottleneck, Profile
from ..common.replies import Line, Reply, checked


class StateReading(Reply):
    """Reply of the state extractor."""

    primary: Bottleneck
    """The resource that holds the kernel back first."""
    secondary: Bottleneck | None = None
    """The one that would hold it back next; null where nothing else comes near."""
    description: Line = Field(min_length=1)
    """One sentence: which kernel, what limits it, and the cause in the code (line numbers)."""
    features: tuple[Line, ...] = Field(min_length=1, max_length=8)
    """The figures of the profile that say so, the most telling first; a few words each."""


def plausible(profile: Profile) -> tuple[Bottleneck, ...]:
    """Return the resources that can hold back the longest launch.

    Where a time model gives the part of each, only those that have one; elsewhere all but
    those that the kernel did not use by its counters: tensor cores, shared memory, atomics.
    """
    launch = profile.dominant
    named: set[str] = {launch.bottleneck, *launch.bottleneck_ties, "latency", "launch"}
    if launch.terms:
        named |= {name for name, microseconds in launch.terms.items() if microseconds > 0}
    else:
        named |= {name for name in get_args(Bottleneck) if _is_used(name, launch.metrics)}
    return tuple(name for name in get_args(Bottleneck) if name in named)


def _is_used(name: Bottleneck, metrics: Mapping[str, float]) -> bool:
    """Say whether counters leave it open that a resource was at work."""
    words = {
        "tensor": ("tensor",),
        "shared_memory": ("mem_shared", "wavefronts_shared", "op_shared"),
        "atomic": ("op_atom", "op_red"),
    }.get(name)
    if words is None:
        return True
    counted = {key: value for key, value in metrics.items() if any(word in key for word in words)}
    at_work = any(value > _idle(key) for key, value in counted.items())
    return at_work or (not counted and name != "tensor")


def _idle(metric: str) -> float:
    """Return what a counter shows of a resource that does nothing: shares are read to about 1 %."""
    return 1.0 if "pct_of_peak" in metric else 0.0


def reading_of(profile: Profile) -> type[StateReading]:
    """Return the form of a reading of one profile: it must name resources at work there."""
    known = plausible(profile)

    def check(reading: StateReading) -> None:
        for name in (reading.primary, reading.secondary):
            if name is not None and name not in known:
                raise ValueError(
                    f"the profile shows no work of {name}; name one of {', '.join(known)}"
                )
        if reading.secondary == reading.primary:
            raise ValueError("primary and secondary are the same resource")

    return checked(StateReading, check)

"""Turn a launch's profile into a fixed vector, so that kernels in the same situation lie close.

Every dimension is scaled to [0, 1]. The metrics are those of one launch, under Nsight Compute's
names; a few dimensions describe the whole program. What the device did not report is `UNKNOWN`, and
a distance leaves out what either side does not know: a profile with few counters lies where the
same kernel's profile with many does. What was stored in the earlier layout is read by `completed`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....harness.nsight.bottleneck import second_of
from ....harness.records.profiles import Bottleneck, LaunchProfile, Profile
from ...records.states import Signature
from .dimensions import AT_BOUND, BOTTLENECKS, DIMENSIONS, EARLIER, LATER_UNKNOWN, SECOND, UNKNOWN

NEAR_BOUND = 0.6
"""Share of the bound from which a program is on its way to where nothing is left to gain."""
KEPT = 64
"""Signatures of launches that were asked for last: several agents ask for the same at a step."""
_STRIKING = 0.05
"""Weighted deviation below which a dimension is not worth words."""


def signature_of(
    profile: Profile, launch: LaunchProfile | None = None, bound_us: float | None = None
) -> Signature:
    """Return the signature of a launch: a value in [0, 1] or `UNKNOWN` for each of `DIMENSIONS`.

    Args:
        profile: of the whole program.
        launch: one of its launches; by default the dominant one.
        bound_us: what no kernel of the task can be faster than, where that is known.
    """
    return _signature(_Same(profile), _Same(launch or profile.dominant), bound_us)


class _Same:
    """A record that is the same object, which is told sooner than that it says the same."""

    def __init__(self, record: Any) -> None:
        self.record = record

    def __hash__(self) -> int:
        return id(self.record)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.record is self.record


@functools.lru_cache(KEPT)
def _signature(whole: _Same, one: _Same, bound_us: float | None) -> Signature:
    profile: Profile = whole.record
    seen: LaunchProfile = one.record
    values = [_clamped(dimension.measure(profile, seen)) for dimension in DIMENSIONS]
    if bound_us is not None:
        reached = bound_us / profile.microseconds
        values[AT_BOUND] = _clamped((reached - NEAR_BOUND) / (1.0 - NEAR_BOUND))
    return Signature(values=tuple(values))


def _clamped(value: float | None) -> float:
    return UNKNOWN if value is None else round(min(max(value, 0.0), 1.0), 6)


def bottlenecks_of(
    profile: Profile, launch: LaunchProfile | None = None
) -> tuple[Bottleneck, Bottleneck | None]:
    """Return a launch's bottleneck and the second: a tie, its next time term, or by counters.

    Args:
        profile: of the whole program.
        launch: one of its launches; by default the dominant one.
    """
    launch = launch or profile.dominant
    if launch.bottleneck_ties:
        return launch.bottleneck, launch.bottleneck_ties[0]
    if not launch.terms:
        return launch.bottleneck, second_of(launch.metrics, launch.bottleneck)
    others = sorted(
        (name for name in launch.terms if name in BOTTLENECKS and name != launch.bottleneck),
        key=lambda name: (-launch.terms[name], name),
    )
    second: Any = others[0] if others and launch.terms[others[0]] > 0 else None
    return launch.bottleneck, second


def centroid_of(features: Mapping[str, float], *, alone: bool = False) -> tuple[float, ...]:
    """Return a state's full values from named ones.

    Args:
        features: values by name of the dimension.
        alone: whether these alone define the state, and all others are unknown.

    Raises:
        ValueError: a name is no dimension, or a value lies outside [0, 1].
    """
    unknown = set(features) - {dimension.name for dimension in DIMENSIONS}
    if unknown or not all(0.0 <= value <= 1.0 for value in features.values()):
        raise ValueError(f"bad signature features {sorted(unknown) or dict(features)}")
    assumed = LATER_UNKNOWN if not alone else (UNKNOWN,) * len(DIMENSIONS)
    return tuple(
        features.get(dimension.name, value)
        for dimension, value in zip(DIMENSIONS, assumed, strict=True)
    )


def completed(values: Sequence[float]) -> tuple[float, ...]:
    """Return values in today's layout: what the earlier one did not have is unknown.

    Raises:
        ValueError: they are of neither layout.
    """
    if len(values) not in (EARLIER, SECOND, len(DIMENSIONS)):
        raise ValueError(f"a signature of {len(values)} values")
    return (*values, *LATER_UNKNOWN[len(values) :])


def mean_of(signatures: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Return the mean of what is known of each dimension."""
    columns = zip(*map(completed, signatures), strict=True)
    known = ([value for value in column if value >= 0.0] for column in columns)
    return tuple(round(sum(each) / len(each), 6) if each else UNKNOWN for each in known)


def named(values: Sequence[float]) -> dict[str, float]:
    """Return what is known of a signature, by name of the dimension."""
    pairs = zip(DIMENSIONS, completed(values), strict=True)
    return {dimension.name: value for dimension, value in pairs if value >= 0.0}


def explain(signature: Signature, limit: int = 5) -> list[str]:
    """Return the most striking features in words, the most striking first."""
    known = [
        (dimension, value)
        for dimension, value in zip(DIMENSIONS, completed(signature.values), strict=True)
        if value >= 0.0
    ]
    ranked = sorted(
        known, key=lambda pair: (-abs(pair[1] - pair[0].neutral) * pair[0].weight, pair[0].name)
    )
    return [
        dimension.words.format(f"{value:.0%}")
        for dimension, value in ranked
        if abs(value - dimension.neutral) * dimension.weight > _STRIKING
        and (value > 0.0 or "{}" in dimension.words)
    ][:limit]

"""Which launches of a program with many are counted, and one profile of what is known of all.

Every launch is timed, in one pass. Counters take tens of passes and most of a second a launch:
they are read of those kinds of launches that the time goes into, once each. Which these are, times
between events tell before ncu does, so that both runs of it start at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from ..records.outcomes import Outcome
from ..records.profiles import ALWAYS_KEPT, LaunchProfile, Profile
from .profile import NcuResult, unavailable

FEW_LAUNCHES = 3
"""Of a program with as many all are counted, in one run."""
MOST_TIMED = 2000
"""Launches that are timed each by itself; of more, the first of each kind is."""
COVERED = 0.9
"""Share of the time of the kinds of launches that are counted."""
MOST_KINDS = 8
"""Kinds of launches that are counted, whatever their share."""
NOT_COUNTED = (
    "Only its time, cycles and DRAM bytes were counted: others take most of the call's time."
)


def timed_places(kinds: Sequence[int]) -> list[int]:
    """Return which launches are timed.

    Args:
        kinds: of each launch, the place of the first that is like it.
    """
    return list(range(len(kinds))) if len(kinds) <= MOST_TIMED else sorted(set(kinds))


def spread(timed: Profile, kinds: Sequence[int]) -> Profile:
    """Return the profile of all launches from that of the timed ones: alike ones take the same."""
    known = dict(zip(timed_places(kinds), timed.launches, strict=True))
    launches = (
        (known.get(place) or known[kind]).model_copy(
            update={"like": None if kind == place else kind, "advice": (NOT_COUNTED,)}
        )
        for place, kind in enumerate(kinds)
    )
    return timed.model_copy(update={"launches": tuple(launches)})


class Launched(Protocol):
    """A launch of which it is known how long it takes."""

    @property
    def kernel(self) -> str:
        """Its kernel's name."""
        ...

    @property
    def microseconds(self) -> float | None:
        """Its time."""
        ...


def counted_places(launches: Sequence[Launched], kinds: Sequence[int]) -> list[int]:
    """Return which launches are to be counted: the first of each kind that matters, in order.

    That of the dominant launch, then those that take most of the time together, until COVERED of
    it is.
    """
    spent: Counter[int] = Counter()
    for launch, kind in zip(launches, kinds, strict=True):
        spent[kind] += round((launch.microseconds or 0.0) * 1e6)  # Exact, so ties keep their order.
    first = kinds[dominant_place(launches)]
    chosen, covered = [first], spent[first]
    for kind, time in spent.most_common():
        if covered >= COVERED * spent.total() or len(chosen) == MOST_KINDS:
            break
        if kind != first:
            chosen.append(kind)
            covered += time
    return sorted(chosen)


def dominant_place(launches: Sequence[Launched]) -> int:
    """Return the place of the longest launch of the kernel that takes most of the time."""
    spent: Counter[str] = Counter()
    for launch in launches:
        spent[launch.kernel] += round((launch.microseconds or 0.0) * 1e6)
    [(kernel, _)] = spent.most_common(1)
    mine = [place for place, launch in enumerate(launches) if launch.kernel == kernel]
    return max(mine, key=lambda place: launches[place].microseconds or 0.0)


def put_together(
    profile: Profile, kinds: Sequence[int], places: Sequence[int], counted: NcuResult
) -> NcuResult:
    """Return the profile of all launches, with counters where a launch of their kind was counted.

    Args:
        profile: of all launches, as `spread` returns it.
        kinds: as in `timed_places`.
        places: of the launches that were to be counted.
        counted: what came of that. Where nothing did, the times stand, and it is told why.
    """
    found = counted.profile.launches if counted.profile else ()
    asked = [profile.launches[place].kernel for place in places]
    if [launch.kernel for launch in found] != asked:
        why = counted.reason or f"ncu counted {len(found)} of the {len(asked)} asked for"
        return NcuResult(
            outcome=Outcome.PASSED, profile=profile, collection="timed", reader=counted.reader,
            counted=f"none of {len(kinds)} launches: {why}",
        )  # fmt: skip
    by_kind = dict(zip(places, found, strict=True))
    launches = [
        _with_counters(launch, by_kind[kind]) if kind in by_kind else launch
        for launch, kind in zip(profile.launches, kinds, strict=True)
    ]
    share = sum(
        launch.microseconds for launch, kind in zip(launches, kinds, strict=True) if kind in by_kind
    ) / profile.microseconds
    stand_for = sum(kind in by_kind for kind in kinds)
    told = (
        f"{len(places)} of {len(kinds)} launches ({', '.join(map(str, places))}), which stand for "
        f"{stand_for} and {share:.0%} of the time; the others are timed"
    )
    rules = tuple(
        rule.model_copy(update={"launch": places[rule.launch]}) for rule in counted.rules
    )
    return counted.model_copy(update={
        "profile": profile.model_copy(update={"launches": tuple(launches)}),
        "rules": rules, "counted": told,
    })  # fmt: skip


def require_all(timed: NcuResult, kinds: Sequence[int]) -> NcuResult:
    """Return the result, or that there is none where it lacks launches or has others' too."""
    expected = len(timed_places(kinds))
    if timed.profile is None or len(timed.profile.launches) == expected:
        return timed
    return unavailable(
        f"ncu timed {len(timed.profile.launches)} launches, and {expected} were asked for",
        "profile again; if it stays so, this ncu treats profiler ranges otherwise than is known",
    )


def _with_counters(launch: LaunchProfile, counted: LaunchProfile) -> LaunchProfile:
    """Return a launch with another's counters and its own time and traffic."""
    own = {name: value for name, value in launch.metrics.items() if name in ALWAYS_KEPT}
    return counted.model_copy(update={
        "microseconds": launch.microseconds, "metrics": counted.metrics | own,
        "like": launch.like,
    })  # fmt: skip

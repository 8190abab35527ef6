"""Which figures of a profile a technique moved, of those that it should, and which against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...memory.knowledge.states.dimensions import DIMENSIONS, UNKNOWN
from ...memory.knowledge.states.signature import mean_of
from ...memory.records.states import PerformanceState
from ...tools.techniques.catalogue import techniques

MOVED = 0.05
"""Change of a dimension, of its whole range, from which it counts as moved."""
AGAINST = 0.1
"""Change for the worse from which it is told."""
SYMPTOM = 2.0
"""Weight from which on a dimension that a state names is a symptom, which should go."""
BAD: Mapping[str, int] = {
    "uncoalesced": 1, "bank_conflicts": 1, "idle_lanes": 1, "idle_sms": 1, "spills": 1,
    "atomics": 1, "more_launches": 1, "load_sectors": 1, "store_sectors": 1,
    "limit_registers": 1, "limit_shared": 1, "occupancy": -1, "l1_hit": -1, "l2_hit": -1,
}  # fmt: skip
"""Dimensions that cost time where they rise (1) or fall (-1)."""
_COUNTED = ("sm", "dram", "l2", "l1", "occupancy")
"""One of these is above 0 wherever counters were read."""
_AT = {dimension.name: at for at, dimension in enumerate(DIMENSIONS)}

Pair = tuple[Sequence[float], Sequence[float]]
"""Signatures before and after a step."""


class Movement(NamedTuple):
    """What steps of one technique did to the figures of a profile."""

    moved: tuple[str, ...] = ()
    """Dimensions that should move, and did."""
    stayed: tuple[str, ...] = ()
    """Those that should, and did not, though they could."""
    against: tuple[str, ...] = ()
    """Those that moved for the worse."""
    cause: str = ""
    """The same in words, with the figures."""


def expected(technique: str, state: PerformanceState | None) -> dict[str, int]:
    """Return the dimensions that a technique should raise (1) or lower (-1).

    Those that it declares; of one that declares none, the symptoms that the state is known by.
    """
    known = techniques().get(technique)
    if known is not None and known.moves:
        return {name[1:]: 1 if name[0] == "+" else -1 for name in known.moves if name[1:] in _AT}
    if state is None:
        return {}
    return {
        dimension.name: -1
        for dimension, value in zip(DIMENSIONS, state.centroid, strict=True)
        if dimension.weight >= SYMPTOM and value > dimension.neutral + AGAINST
    }


def movement(technique: str, state: PerformanceState | None, pairs: Sequence[Pair]) -> Movement:
    """Return what steps moved, each a pair of signatures; nothing where no counters were read."""
    counted = [
        pair
        for pair in pairs
        if all(any(side[_AT[each]] > 0.0 for each in _COUNTED) for side in pair)
    ]
    if not counted:
        return Movement()
    before, after = (mean_of(pair[side] for pair in counted) for side in (0, 1))
    changed = {
        name: after[at] - before[at]
        for name, at in _AT.items()
        if UNKNOWN not in (before[at], after[at])
    }
    wanted = {name: sign for name, sign in expected(technique, state).items() if name in changed}
    moved = tuple(name for name, sign in wanted.items() if sign * changed[name] >= MOVED)
    # What stands at the end of its range could not move: that is no fault of the technique.
    room = {
        name: 1.0 - before[_AT[name]] if sign > 0 else before[_AT[name]]
        for name, sign in wanted.items()
    }
    spent = tuple(name for name in wanted if name not in moved and room[name] < MOVED)
    stayed = tuple(name for name in wanted if name not in (*moved, *spent))
    against = tuple(
        name for name, sign in BAD.items() if sign * changed.get(name, 0.0) >= AGAINST
    )

    def told(names: Sequence[str]) -> str:
        places = [_AT[name] for name in names]
        return ", ".join(DIMENSIONS[at].changed(before[at], after[at]) for at in places)

    parts = (
        ("as it should: ", moved),
        ("did not move, and should have: ", stayed),
        ("could hardly be better before: ", spent if not moved else ()),
        ("for the worse: ", against),
    )
    cause = "; ".join(f"{label}{told(names)}" for label, names in parts if names)
    return Movement(moved, stayed, against, cause)

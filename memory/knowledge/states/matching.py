"""How much a kernel is in each performance state: by distance, and no name of a bottleneck decides.

A state's weight falls with its distance as a bell curve does; one whose bottlenecks are not the
kernel's stands a little further off. The state is the nearest of those that the kernel lies within
reach of; where there is none, it is in a state that nobody knows yet. Of a kernel of which a part's
condition holds, the part stands where the whole would.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....harness.records.identity import sha256_of_json
from ....harness.records.profiles import Bottleneck
from ...records.conditions import Condition
from ...records.states import PerformanceState, Signature
from .conditions import KernelFacts, signature_facts
from .dimensions import EARLIER, UNKNOWN, WEIGHTS
from .distances import distances
from .signature import explain

OTHER_SECOND, OTHER_FIRST = 0.02, 0.05
"""Added to the distance of a state that has the kernel's first bottleneck second, or its second
first; and of one that has neither."""
BANDWIDTH = 0.08
"""Distance at which a state's weight is 0.6 of that of one in the very place."""
REACH = 1.25
"""A kernel is in a state at up to this times its spread."""
COMPARED = 0.45
"""Share of what a state's centroid knows that must be known of a kernel: one known by its time
alone is in no state that counters tell. Of what is known of a kernel as much must be known of a
state that a rule found."""
NEAR = 0.7
"""Weight, of the best state's, from which another is taken to fit about as well."""
LISTED = 8
"""States that a kernel is said to be in, the nearest."""
DISCOVERED_SPREAD = 0.15
QUANTUM = 0.2
"""Grid on which a discovered state's centroid stands, so that near finds are one state."""
BY_RULE = "Found in a profile"
"""How the description of a state begins that nobody has put into words."""
OVERLAP = 0.5
"""Two states are one where their centroids are apart by less than this times the larger spread."""


class Near(NamedTuple):
    """A state near a kernel."""

    state: PerformanceState
    away: float
    """Distance of the kernel's signature from the centroid."""
    weight: float
    """Of all listed ones together 1."""
    within: bool
    """Whether the kernel lies within its reach."""


class Part(NamedTuple):
    """A state that is told from another by a condition."""

    state: str
    whole: str
    """The other; a part of a part names that one."""
    condition: Condition
    """Holds of the kernels of the part, and not, or not known, of the others."""


class States:
    """Known states, with their centroids in one array."""

    def __init__(self, states: Iterable[PerformanceState], parts: Iterable[Part] = ()) -> None:
        """Take the states, and which are parts of others, each after its whole."""
        self._states = tuple(states)
        self._places = {each.id: place for place, each in enumerate(self._states)}
        self._parts = tuple(each for each in parts if each.state in self._places)
        self._centroids = np.array([each.centroid for each in self._states])
        self._spreads = np.array([each.spread for each in self._states])
        self._found = np.array([each.description.startswith(BY_RULE) for each in self._states])

    def near(
        self,
        signature: Signature,
        primary: Bottleneck,
        secondary: Bottleneck | None,
        facts: KernelFacts | None = None,
    ) -> list[Near]:
        """Return the nearest states, the nearest first, ties by id.

        `facts` is what more is known of the kernel than its signature says.
        """
        if not self._states:
            return []
        away = distances(signature.values, self._centroids)
        off = away + np.array([_off(each, primary, secondary) for each in self._states])
        there, here = compared(signature.values, self._centroids)
        within = (off <= REACH * self._spreads) & there & (here | ~self._found)
        left_out: set[int] = set()
        if self._parts:
            known = {**(facts or {}), **signature_facts(signature.values)}
            left_out = self._divided(known, off, within)
        order = sorted(
            (i for i in range(len(self._states)) if i not in left_out),
            key=lambda i: (off[i], self._states[i].id),
        )[:LISTED]  # fmt: skip
        closest = float(off[order[0]])
        # Relative to the closest, so that what is far from all of them still sums to 1.
        bells = [math.exp((closest**2 - float(off[i]) ** 2) / (2 * BANDWIDTH**2)) for i in order]
        return [
            Near(self._states[i], float(away[i]), bell / math.fsum(bells), bool(within[i]))
            for i, bell in zip(order, bells, strict=True)
        ]

    def _divided(
        self, facts: KernelFacts, off: NDArray[np.float64], within: NDArray[np.bool_]
    ) -> set[int]:
        """Put parts in the place of their wholes, or leave them out; return who is left out."""
        absent, divided = set(), set()
        for part in self._parts:
            own, whole = self._places[part.state], self._places.get(part.whole)
            if part.condition.holds(facts) is not True or whole in absent:
                absent.add(own)
            elif whole is not None:
                off[own], within[own] = off[whole], within[whole]
                divided.add(whole)
        return absent | divided


def best(near: Sequence[Near]) -> Near | None:
    """Return the state that a kernel is in, of those near it; None where it lies within none."""
    return next((each for each in near if each.within), None)


def tied(near: Sequence[Near]) -> list[Near]:
    """Return the states of which any may be the kernel's: one where that is clear.

    None where it lies within no state.
    """
    found = best(near)
    if found is None:
        return []
    return [each for each in near if each.within and each.weight >= NEAR * found.weight]


def discover(
    signature: Signature, primary: Bottleneck, secondary: Bottleneck | None
) -> PerformanceState:
    """Make a state of a signature that fits none; the same for all signatures of one grid cell."""
    centroid = tuple(
        UNKNOWN if value < 0.0 else round(round(value / QUANTUM) * QUANTUM, 6)
        for value in signature.values
    )
    name, told = _in_words(centroid, primary, secondary)
    return PerformanceState(
        id=found_id(primary, secondary, centroid),
        name=name,
        primary=primary,
        secondary=secondary,
        centroid=centroid,
        spread=DISCOVERED_SPREAD,
        description=f"{BY_RULE}, its shares to the nearest {QUANTUM:.0%}. {told}",
        origin="discovered",
    )


def found_id(
    primary: Bottleneck, secondary: Bottleneck | None, centroid: Sequence[float]
) -> str:
    """Return the id of a state that was found: by what it is bound by, and where it lies."""
    digest = sha256_of_json([primary, secondary, list(centroid)])[:8]
    return "_".join(["found", primary, *([secondary] if secondary else []), digest])


def renamed(state: PerformanceState, mean: Sequence[float], kernels: int) -> tuple[str, str]:
    """Return what a state that a rule named is called, and described as, by its kernels' mean."""
    name, told = _in_words(mean, state.primary, state.secondary)
    return name, f"{BY_RULE}, with {kernels} kernels known of it by now. {told}"


def _in_words(
    values: Sequence[float], primary: Bottleneck, secondary: Bottleneck | None
) -> tuple[str, str]:
    features = explain(Signature(values=tuple(values)), limit=4)
    bound = f"{primary}, then {secondary}" if secondary else primary
    name = f"bound by {bound}: {features[0] if features else 'nothing striking'}"
    return name, f"Bottleneck {bound}. " + "; ".join(features) + "."


def joined(states: Iterable[PerformanceState]) -> tuple[list[PerformanceState], dict[str, str]]:
    """Return the states that stand, and by the id of each other one that in which it is contained.

    A state that a rule found is contained in one that it overlaps: of the seed, put into words by
    somebody, or found by the rule with an id that comes first; in whichever order they came. What
    somebody has told apart stands as it is.
    """
    given = list(states)
    ranked = sorted(given, key=lambda each: (each.description.startswith(BY_RULE), each.id))
    centroids = np.array([each.centroid for each in ranked])
    spreads = np.array([each.spread for each in ranked])
    standing = np.array([not each.description.startswith(BY_RULE) for each in ranked], dtype=bool)
    into: dict[str, str] = {}
    for place in np.flatnonzero(~standing):
        state, others = ranked[place], np.flatnonzero(standing)
        away = distances(state.centroid, centroids[others])
        same = away <= OVERLAP * np.maximum(spreads[others], state.spread)
        there, here = compared(state.centroid, centroids[others])
        same &= there & here
        if same.any():
            into[state.id] = ranked[others[np.argmin(np.where(same, away, np.inf))]].id
        else:
            standing[place] = True
    return [each for each in given if each.id not in into], into


def compared(
    values: Sequence[float], others: NDArray[np.float64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Say of each of many signatures whether one knows enough of it, and it enough of that one."""
    weights = WEIGHTS[:EARLIER]
    here, there = np.array(values[:EARLIER]) >= 0.0, others[:, :EARLIER] >= 0.0
    both = (weights * (here & there)).sum(axis=1)
    return (
        both >= COMPARED * (weights * there).sum(axis=1),
        both >= COMPARED * (weights * here).sum(),
    )


def _off(
    state: PerformanceState, primary: Bottleneck, secondary: Bottleneck | None
) -> float:
    """Return what is added to the distance of a state whose bottlenecks are others."""
    if state.primary == primary:
        return 0.0
    return OTHER_SECOND if primary == state.secondary or state.primary == secondary else OTHER_FIRST

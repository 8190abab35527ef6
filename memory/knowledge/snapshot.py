"""A knowledge base as of one sequence number: what an iteration reads, whatever is written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from ...harness.records import Bottleneck, Outcome, sha256_of_json
from ..records import Evidence, Lesson, Optimization, PerformanceState, Signature, StateOptimization
from .facts import Rows, comparable
from .journal import Entry
from .policy import Policy
from .seed import Seed
from .signature import distance, explain
from .state_index import IndexedState

STATE, OPTIMIZATION, LESSON = "state", "optimization", "lesson"
SECONDARY_PENALTY = 0.05
"""Added to the distance of a state whose primary bottleneck is not the one here."""
DISAGREEMENT_PENALTY = 0.03
"""Added where a state names a secondary bottleneck that is not one of the two here."""
DISCOVERED_SPREAD = 0.15
QUANTUM = 0.2
"""Grid on which a discovered state's centroid stands, so that near finds are one state."""
CONTESTED_AFTER, CONTESTED_GAIN = 2, 0.01
"""Later rows, and the mean log gain on the other side of 0, that make a lesson contested."""


class Snapshot:
    """States, optimizations, lessons and the policy, derived from journal entries up to `at`."""

    def __init__(self, seed: Seed, entries: Sequence[Entry], rows: Rows, at: int) -> None:
        self.at = at
        self._seed = seed
        self._rows = rows
        self._counts = Counter(row.state_before for _, row in rows)
        self._found = _discovered(entry for entry in entries if entry.kind == STATE)
        self._changes = [
            StateOptimization.model_validate_json(entry.body)
            for entry in entries
            if entry.kind == OPTIMIZATION
        ]
        self._lessons = [
            Lesson.model_validate_json(entry.body).model_copy(update={"created": entry.sequence})
            for entry in entries
            if entry.kind == LESSON
        ]
        self._evidence_sequences = {
            entry.id: entry.sequence for entry in entries if entry.kind == "evidence"
        }
        self._states = {state.id: self._counted(state) for state in seed.states} | {
            state.id: self._counted(state) for state, _ in self._found
        }
        self._policies: dict[bool, Policy] = {}

    def evidence(self) -> list[Evidence]:
        """Return all evidence, in order of id."""
        return [row for _, row in self._rows]

    def states(self) -> list[PerformanceState]:
        """Return the seed's states, then the discovered ones in order of arrival."""
        return list(self._states.values())

    def indexed_states(self) -> list[IndexedState]:
        """Return what the state index holds."""
        sequences = {state.id: sequence for state, sequence in self._found}
        return [
            IndexedState(
                state.id,
                state.primary,
                state.secondary or "",
                sequences.get(state.id, 0),
                state.centroid,
            )
            for state in self._states.values()
        ]

    def optimizations(self, device_kind: str) -> dict[str, dict[str, Optimization]]:
        """Return optimizations by state and technique, as parameter update left them.

        Only what was learned on comparable devices counts over the seed.
        """
        table = {state: dict(known) for state, known in self._seed.optimizations.items()}
        changes = (item for item in self._changes if comparable(item.device_kind, device_kind))
        for change in sorted(changes, key=lambda item: item.rank):
            under = table.setdefault(change.state_id, {})
            under[change.optimization.technique] = self._seed.with_todays_parameters(
                change.optimization
            )
        return table

    def policy(self, device_kind: str) -> Policy:
        """Return the policy for a kind of device; derived once a snapshot."""
        simulated = device_kind == "simulated"
        if simulated not in self._policies:
            rows = [row for row in self._rows if comparable(row[1].device_kind, device_kind)]
            self._policies[simulated] = Policy(
                rows, self._states.values(), self.optimizations(device_kind)
            )
        return self._policies[simulated]

    def choose(
        self,
        nearest: Sequence[str],
        signature: Signature,
        primary: Bottleneck,
        secondary: Bottleneck | None,
    ) -> tuple[PerformanceState, float, bool]:
        """Return the state that fits: near enough, and of one mind about the bottleneck.

        `nearest` are the ids retrieved from the index; they are ranked again here, exactly, so
        that every way of retrieving gives the same answer. When none fits, a new state is made
        from the signature and the last value is True; it is not stored.
        """
        best: tuple[float, str, float] | None = None
        closest = 1.0
        for state_id in nearest:
            state = self._states[state_id]
            away = distance(signature.values, state.centroid)
            closest = min(closest, away)
            if away <= state.spread:
                ranked = (away + _disagreement(state, primary, secondary), state.id, away)
                best = min(best, ranked) if best else ranked
        if best:
            return self._states[best[1]], best[2], False
        new = discover(signature, primary, secondary)
        known = self._states.get(new.id)
        if known:
            return known, distance(signature.values, known.centroid), False
        return new, closest, True

    def lessons(self, technique: str | None = None, state: str | None = None) -> list[Lesson]:
        """Return lessons in order of id, optionally of one technique or one state."""
        return [
            lesson.model_copy(update={"contested": self._is_contested(lesson)})
            for lesson in sorted(self._lessons, key=lambda lesson: lesson.id)
            if technique in (None, lesson.technique) and state in (None, lesson.state)
        ]

    def deprecated(self, state_id: str, device_kind: str, op_class: str) -> frozenset[str]:
        """Return techniques that an uncontested lesson advises against in a state.

        For one class of operation: a technique that is unsafe for a softmax may suit a matrix
        product.
        """
        return frozenset(
            lesson.technique
            for lesson in self.lessons(state=state_id)
            if lesson.kind == "deprecation"
            and lesson.technique
            and lesson.op_class in (None, op_class)
            and comparable(lesson.device_kind, device_kind)
            and not lesson.contested
        )

    def _counted(self, state: PerformanceState) -> PerformanceState:
        return state.model_copy(update={"count": self._counts[state.id]})

    def _is_contested(self, lesson: Lesson) -> bool:
        rows = [pair for pair in self._rows if _speaks_of(pair[1], lesson)]
        if lesson.kind == "deprecation" and lesson.claimed_log_gain is None:
            # It says that no try passes, so one pass is enough, also one that another process
            # wrote while the lesson was being drawn.
            return any(row.log_gain is not None for _, row in rows)
        if not lesson.claimed_log_gain:
            return False
        later = [
            row.log_gain or 0.0
            for identity, row in rows
            if self._evidence_sequences[identity] > lesson.created
        ]
        if len(later) < CONTESTED_AFTER:
            return False
        against = -math.copysign(1.0, lesson.claimed_log_gain)
        return against * math.fsum(later) / len(later) > CONTESTED_GAIN


def discover(
    signature: Signature, primary: Bottleneck, secondary: Bottleneck | None
) -> PerformanceState:
    """Make a state of a signature that fits none; the same for all signatures of one grid cell."""
    centroid = tuple(round(round(value / QUANTUM) * QUANTUM, 6) for value in signature.values)
    digest = sha256_of_json([primary, secondary, centroid])[:8]
    features = explain(Signature(values=centroid), limit=4)
    bound = f"{primary}, then {secondary}" if secondary else primary
    return PerformanceState(
        id="_".join(["found", primary, *([secondary] if secondary else []), digest]),
        name=f"bound by {bound}: {features[0] if features else 'nothing striking'}",
        primary=primary,
        secondary=secondary,
        centroid=centroid,
        spread=DISCOVERED_SPREAD,
        description=f"Found in a profile, its shares to the nearest {QUANTUM:.0%}. "
        f"Bottleneck {bound}. " + "; ".join(features) + ".",
        origin="discovered",
    )


def _discovered(entries: Iterable[Entry]) -> list[tuple[PerformanceState, int]]:
    """Return stored states with the sequence at which each id first appeared."""
    first: dict[str, tuple[PerformanceState, int]] = {}
    for entry in entries:
        state = PerformanceState.model_validate_json(entry.body)
        first.setdefault(state.id, (state, entry.sequence))
    return list(first.values())


def _disagreement(
    state: PerformanceState, primary: Bottleneck, secondary: Bottleneck | None
) -> float:
    penalty = 0.0 if state.primary == primary else SECONDARY_PENALTY
    if secondary and state.secondary and state.secondary not in (primary, secondary):
        penalty += DISAGREEMENT_PENALTY
    return penalty


def _speaks_of(row: Evidence, lesson: Lesson) -> bool:
    *before, technique = (lesson.technique or "").split(" then ")
    return (
        row.technique == technique
        and (not before or row.previous_technique == before[-1])
        and lesson.state in (None, row.state_before)
        and lesson.op_class in (None, row.op_class)
        and comparable(row.device_kind, lesson.device_kind)
        and row.outcome is not Outcome.NOT_APPLICABLE
    )

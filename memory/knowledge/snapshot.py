"""A knowledge base as of one sequence number: what an iteration reads, whatever is written."""

from __future__ import annotations

from collections.abc import Sequence

from ...harness.records import Bottleneck, sha256_of_json
from ..records import Deprecate, Evidence, Lesson, Optimization, PerformanceState, Signature
from .conditions import KernelFacts
from .contents import Contents
from .edits import Edits, StoredEdit
from .facts import Told
from .lessons import Lessons, merged
from .policy import Policy
from .signature import distance, explain

SECONDARY_PENALTY = 0.05
"""Added to the distance of a state whose primary bottleneck is not the one here."""
DISAGREEMENT_PENALTY = 0.03
"""Added where a state names a secondary bottleneck that is not one of the two here."""
DISCOVERED_SPREAD = 0.15
QUANTUM = 0.2
"""Grid on which a discovered state's centroid stands, so that near finds are one state."""


class Snapshot:
    """States, optimizations, lessons and the policy of what was known at `at`, each derived when it
    is first asked for. What an earlier snapshot derived is used again where nothing came since."""

    def __init__(self, contents: Contents, at: int, before: Snapshot | None = None) -> None:
        """Look at contents up to a sequence number; `before` is any other snapshot of them."""
        self.at = at
        self._contents = contents
        self.edits = Edits(contents.edits, at)
        """Those that stand."""
        self._states = self.edits.states(
            state.model_copy(update={"count": contents.facts.count_in_state(state.id, at)})
            for sequence, state in contents.states
            if sequence <= at
        )
        self._changes = [each for each in contents.changes if each.sequence <= at]
        self._tables: dict[bool, dict[str, dict[str, Optimization]]] = {}
        self._policies: dict[bool, Policy] = {}
        self._lessons: Lessons | None = None
        self._before: Lessons | None = None
        if before is not None:
            # Its finding, not the snapshot itself, which would keep all earlier ones alive.
            self._before = before._lessons or before._before
            same = len(self._changes) == len(before._changes)
            if same and self.edits.standing == before.edits.standing:
                self._tables |= before._tables

    def told(self) -> list[Told]:
        """Return all evidence as it is stored, in order of arrival."""
        return self._contents.facts.told(self.at)

    def evidence(self) -> list[Evidence]:
        """Return all evidence, in order of id."""
        return [each.row for each in sorted(self.told(), key=lambda each: each.id)]

    def states(self) -> list[PerformanceState]:
        """Return the seed's states, then the discovered ones in order of arrival."""
        return list(self._states.values())

    def state(self, state_id: str) -> PerformanceState | None:
        """Return one state, or None where it is not (yet) known."""
        return self._states.get(self.edits.joined.get(state_id, state_id))

    def optimizations(self, device_kind: str) -> dict[str, dict[str, Optimization]]:
        """Return optimizations by state and technique, as parameter update left them.

        Only what was learned on comparable devices counts over the seed.
        """
        simulated = device_kind == "simulated"
        if simulated not in self._tables:
            self._tables[simulated] = self.edits.optimizations(
                self._contents.seed.optimizations,
                [each.change for each in self._changes],
                device_kind,
            )
        return self._tables[simulated]

    def stored_edits(self) -> list[StoredEdit]:
        """Return all edits and what undoes them, in order of arrival."""
        return [each for each in self._contents.edits if each.sequence <= self.at]

    def described(self) -> tuple[str, ...]:
        """Return the names of the seed's techniques."""
        return tuple(self._contents.seed.techniques)

    def card(self, technique: str, device_kind: str) -> Optimization | None:
        """Return what is said of a technique of the seed wherever it is tried; None of others."""
        card = self._contents.seed.techniques.get(technique)
        return card and self.edits.revised(card, None, device_kind)

    def cards(self, state_id: str, device_kind: str) -> dict[str, Optimization]:
        """Return every technique as it is listed under a state, the seed's others as they are
        described wherever they are tried."""
        everywhere = {
            name: card
            for name in self._contents.seed.techniques
            if (card := self.card(name, device_kind)) is not None
        }
        return everywhere | self.optimizations(device_kind).get(state_id, {})

    def withheld(self, state_id: str, facts: KernelFacts, device_kind: str) -> dict[str, str]:
        """Return the techniques that conditions or deprecations keep from a kernel, and why."""
        simulated = device_kind == "simulated"
        deprecated = {
            edit.technique for edit in self.edits.standing if isinstance(edit, Deprecate)
        }
        rows = {
            name: [told.row for told in self._contents.facts.tries(name, simulated, self.at)]
            for name in sorted(deprecated)
        }
        cards = self.cards(state_id, device_kind)
        return self.edits.withheld(cards, facts, device_kind, rows)

    def policy(self, device_kind: str) -> Policy:
        """Return the policy for a kind of device; derived once a snapshot."""
        simulated = device_kind == "simulated"
        if simulated not in self._policies:
            self._policies[simulated] = Policy(
                self._contents.facts,
                self._contents.expectations,
                self.at,
                self._states.values(),
                self.optimizations(device_kind),
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
            state = self._states.get(self.edits.joined.get(state_id, state_id))
            if state is None:
                continue  # An edit that made it does not stand.
            away = distance(signature.values, state.centroid)
            closest = min(closest, away)
            if away <= state.spread:
                ranked = (away + _disagreement(state, primary, secondary), state.id, away)
                best = min(best, ranked) if best else ranked
        if best:
            return self._states[best[1]], best[2], False
        new = discover(signature, primary, secondary)
        known = self._states.get(self.edits.joined.get(new.id, new.id))
        if known:
            return known, distance(signature.values, known.centroid), False
        return new, closest, True

    def lessons(self, technique: str | None = None, state: str | None = None) -> list[Lesson]:
        """Return a lesson for each key, in order of content, optionally of those on one technique
        or one state."""
        if technique is None and state is None:
            return list(self._judged().all)
        return merged(
            lesson
            for lesson in self._judged().written
            if technique in (None, lesson.technique) and state in (None, lesson.state)
        )

    def written_lessons(self) -> list[Lesson]:
        """Return all lessons as they were written, in order of content."""
        return list(self._judged().written)

    def deprecated(self, state_id: str, device_kind: str, op_class: str) -> frozenset[str]:
        """Return techniques that an uncontested lesson advises against in a state."""
        return self._judged().deprecated(state_id, device_kind, op_class)

    def _judged(self) -> Lessons:
        if self._lessons is None:
            self._lessons = Lessons(self._contents, self.at, self._before)
        return self._lessons


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


def _disagreement(
    state: PerformanceState, primary: Bottleneck, secondary: Bottleneck | None
) -> float:
    penalty = 0.0 if state.primary == primary else SECONDARY_PENALTY
    if secondary and state.secondary and state.secondary not in (primary, secondary):
        penalty += DISAGREEMENT_PENALTY
    return penalty

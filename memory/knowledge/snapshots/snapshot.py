"""A knowledge base as of one sequence number: what an iteration reads, whatever is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ....harness.records.profiles import Bottleneck
from ...records.edits import Deprecate
from ...records.evidence import Evidence
from ...records.lessons import Lesson
from ...records.optimizations import Optimization, StateOptimization
from ...records.states import PerformanceState, Signature
from ..policy.facts import Rows, Told
from ..policy.policy import Policy
from ..states.conditions import KernelFacts, evidence_facts
from ..states.matching import Near, States, joined
from .contents import Contents
from .edits import Edits, StoredEdit
from .lessons import Lessons, merged


class Snapshot:
    """States, optimizations, lessons and the policy of what was known at `at`, each derived when it
    is first asked for. What an earlier snapshot derived is used again where nothing came since."""

    def __init__(self, contents: Contents, at: int, before: Snapshot | None = None) -> None:
        """Look at contents up to a sequence number; `before` is any other snapshot of them."""
        self.at = at
        self._contents = contents
        self.edits = Edits(contents.edits, at)
        """Those that stand."""
        known = [state for sequence, state in contents.states if sequence <= at]
        self._known: int = len(known)
        kept = (
            before is not None
            and before._known == self._known
            and before.edits.standing == self.edits.standing
        )
        standing: list[PerformanceState]
        self._overlapping: dict[str, str]
        self._standing: dict[str, str]
        self._contained: dict[str, tuple[str, ...]]
        """Ids of states that are another now, by the id of that one."""
        if before is not None and kept:
            standing, self._overlapping = before.states(), before._overlapping
            self._standing, self._contained = before._standing, before._contained
        else:
            standing, self._overlapping = _standing(self.edits, known)
            self._standing = _one_for_each(self.edits.joined, self._overlapping, standing)
            self._contained = {}
            for gone, into in sorted(self._standing.items()):
                self._contained[into] = (*self._contained.get(into, ()), gone)
        counts = self._counts(state.id for state in standing)
        self._states: dict[str, PerformanceState] = {
            state.id: state.model_copy(update={"count": counts[state.id]}) for state in standing
        }
        self._matching = States(self._states.values(), self.edits.parts)
        self._changes = [each for each in contents.changes if each.sequence <= at]
        self._tables: dict[bool, dict[str, dict[str, Optimization]]] = {}
        self._policies: dict[bool, Policy] = {}
        self._everywhere: dict[str, dict[str, Optimization]] = {}
        """The seed's techniques as described wherever they are tried, by kind of device."""
        self._nearest: dict[object, list[Near]] = {}
        """By what was asked: several agents ask of the same kernel at a step."""
        self._lessons: Lessons | None = None
        self._before: Lessons | None = None
        if before is not None:
            # Its finding, not the snapshot itself, which would keep all earlier ones alive.
            self._before = before._lessons or before._before
            if kept and len(self._changes) == len(before._changes):
                self._tables |= before._tables

    def told(self) -> list[Told]:
        """Return all evidence as it is stored, in order of arrival."""
        return self._contents.facts.told(self.at)

    def rows(self, later: Iterable[str] = ()) -> Rows:
        """Return all evidence by id, and rows of these ids that came later."""
        return Rows(self._contents.facts, self.at, later)

    def evidence(self) -> list[Evidence]:
        """Return all evidence, in order of id."""
        return [each.row for each in sorted(self.told(), key=lambda each: each.id)]

    def states(self) -> list[PerformanceState]:
        """Return the seed's states, then the discovered ones in order of arrival; what overlaps
        is one."""
        return list(self._states.values())

    def state(self, state_id: str) -> PerformanceState | None:
        """Return one state, or None where it is not (yet) known; of one that is contained in
        another the other."""
        return self._states.get(self.standing(state_id))

    def standing(self, state_id: str) -> str:
        """Return the id of the state that one is contained in, by an edit or because they overlap:
        mostly its own."""
        return self._standing.get(state_id, state_id)

    def contained(self, state_id: str) -> tuple[str, ...]:
        """Return the ids that a state goes by, its own first: those of states that are it now."""
        return (state_id, *self._contained.get(state_id, ()))

    def whole(self, state_id: str) -> str | None:
        """Return the id of the state that one was split off; None of others."""
        found = (each for each in self.edits.parts if each.state == state_id)
        return next((self.standing(each.whole) for each in found), None)

    def place(self, row: Evidence) -> str:
        """Return the id of the state that a row began in, as states are told apart now."""
        place = self.standing(row.state_before)
        for part in self.edits.parts:
            if self.standing(part.whole) == place and part.condition.holds(evidence_facts(row)):
                place = part.state
        return place

    def told_to_begin(self, state_id: str) -> set[str]:
        """Return the states that rows were told to begin in of which `place` may be this one."""
        found, parts = {state_id}, {each.state: each.whole for each in self.edits.parts}
        while (whole := parts.get(state_id)) is not None and whole not in found:
            state_id = self.standing(whole)
            found |= {whole, state_id}
        return {each for name in found for each in self.contained(name)}

    def _counts(self, states: Iterable[str]) -> Counter[str]:
        """Return how many rows began in each state: what a part has its whole has not."""
        facts, at = self._contents.facts, self.at
        counts: Counter[str] = Counter()
        for name in states:
            counts[name] += sum(facts.count_in_state(each, at) for each in self.contained(name))
        for part in self.edits.parts:
            whole = self.standing(part.whole)
            moved = sum(
                facts.count_where(each, part.condition, at) for each in self.contained(whole)
            )
            counts[whole] -= moved
            counts[part.state] += moved
        return counts

    def optimizations(self, device_kind: str) -> dict[str, dict[str, Optimization]]:
        """Return optimizations by state and technique, as parameter update left them.

        Only what was learned on comparable devices counts over the seed.
        """
        simulated = device_kind == "simulated"
        if simulated not in self._tables:
            table = self.edits.optimizations(
                self._contents.seed.optimizations,
                self.changes(),
                device_kind,
            )
            for gone, into in self._overlapping.items():
                for technique, card in table.pop(gone, {}).items():
                    table.setdefault(into, {}).setdefault(technique, card)
            for part in self.edits.parts:  # What is listed under the whole is under its parts.
                whole = table.get(self.standing(part.whole), {})
                table[part.state] = {**whole, **table.get(part.state, {})}
            self._tables[simulated] = table
        return self._tables[simulated]

    def changes(self) -> list[StateOptimization]:
        """Return the whole entries that earlier versions wrote, in order of arrival."""
        return [each.change for each in self._changes]

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
        if device_kind not in self._everywhere:
            self._everywhere[device_kind] = {
                name: card
                for name in self._contents.seed.techniques
                if (card := self.card(name, device_kind)) is not None
            }
        return self._everywhere[device_kind] | self.optimizations(device_kind).get(state_id, {})

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
                self._contained,
            )
        return self._policies[simulated]

    def near(
        self,
        signature: Signature,
        primary: Bottleneck,
        secondary: Bottleneck | None,
        found: Iterable[PerformanceState] = (),
        facts: KernelFacts | None = None,
    ) -> list[Near]:
        """Return the states nearest to a kernel, with how much it is in each.

        Args:
            signature: of the kernel.
            primary: what holds it back first.
            secondary: what comes next.
            found: states discovered since that count as known.
            facts: what is known of the kernel besides: which part of a state it is in.
        """
        unknown = tuple(each for each in found if self.state(each.id) is None)
        asked = signature, primary, secondary, unknown, frozenset((facts or {}).items())
        if asked not in self._nearest:
            matching = self._matching
            if unknown:
                states = {each.id: each for each in (*self._states.values(), *unknown)}
                matching = States(_joined(states, self.edits)[0], self.edits.parts)
            self._nearest[asked] = matching.near(signature, primary, secondary, facts)
        return [*self._nearest[asked]]

    def lessons(self, technique: str | None = None, state: str | None = None) -> list[Lesson]:
        """Return a lesson for each key, in order of content, optionally of those on one technique
        or one state."""
        if technique is None and state is None:
            return [each.lesson for each in self._judged().all]
        spoken = merged(
            each
            for each in self._judged().written
            if technique in (None, each.lesson.technique)
            and (state is None or self.standing(each.lesson.state or "") == self.standing(state))
        )
        return [each.lesson for each in spoken]

    def written_lessons(self) -> list[Lesson]:
        """Return all lessons as they were written, in order of content."""
        return [each.lesson for each in self._judged().written]

    def deprecated(self, state_id: str, device_kind: str, op_class: str) -> frozenset[str]:
        """Return techniques that an uncontested lesson advises against in a state."""
        here = self.contained(state_id)
        told = (self._judged().deprecated(each, device_kind, op_class) for each in here)
        return frozenset().union(*told)

    def _judged(self) -> Lessons:
        if self._lessons is None:
            self._lessons = Lessons(self._contents, self.at, self._before, self._standing)
        return self._lessons


def _standing(
    edits: Edits, known: Iterable[PerformanceState]
) -> tuple[list[PerformanceState], dict[str, str]]:
    """Return the states that stand, and by the id of each that overlaps another that other's."""
    return _joined(edits.states(known), edits)


def _joined(
    states: Mapping[str, PerformanceState], edits: Edits
) -> tuple[list[PerformanceState], dict[str, str]]:
    """Join what overlaps, but for parts: conditions tell them from their wholes."""
    parts = {each.state for each in edits.parts}
    whole, into = joined(state for name, state in states.items() if name not in parts)
    return [*whole, *(states[name] for name in sorted(parts) if name in states)], into


def _one_for_each(
    edited: Mapping[str, str], overlapping: Mapping[str, str], states: Iterable[PerformanceState]
) -> dict[str, str]:
    """Return which state each that is another now is; one that is not known here contains none."""
    known = {state.id for state in states}
    found = dict(overlapping)
    for gone, into in edited.items():
        end = overlapping.get(into, into)
        if end in known and gone not in known:
            found[gone] = end
    return found

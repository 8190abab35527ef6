"""A knowledge base as of one sequence number: what an iteration reads, whatever is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ....harness.records import Bottleneck
from ...records.edits import Deprecate
from ...records.evidence import Evidence
from ...records.lessons import Lesson
from ...records.optimizations import Optimization
from ...records.states import PerformanceState, Signature
from ..policy.facts import Told
from ..policy.policy import Policy
from ..states.conditions import KernelFacts
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
        if before is not None and kept:
            standing, self._overlapping = before.states(), before._overlapping
        else:
            standing, self._overlapping = joined(self.edits.states(known).values())
        counts: Counter[str] = Counter()
        for state in known:
            counts[self.standing(state.id)] += contents.facts.count_in_state(state.id, at)
        self._states: dict[str, PerformanceState] = {
            state.id: state.model_copy(update={"count": counts[state.id]}) for state in standing
        }
        self._matching = States(self._states.values())
        self._changes = [each for each in contents.changes if each.sequence <= at]
        self._tables: dict[bool, dict[str, dict[str, Optimization]]] = {}
        self._policies: dict[bool, Policy] = {}
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
        state_id = self.edits.joined.get(state_id, state_id)
        return self._overlapping.get(state_id, state_id)

    def optimizations(self, device_kind: str) -> dict[str, dict[str, Optimization]]:
        """Return optimizations by state and technique, as parameter update left them.

        Only what was learned on comparable devices counts over the seed.
        """
        simulated = device_kind == "simulated"
        if simulated not in self._tables:
            table = self.edits.optimizations(
                self._contents.seed.optimizations,
                [each.change for each in self._changes],
                device_kind,
            )
            for gone, into in self._overlapping.items():
                for technique, card in table.pop(gone, {}).items():
                    table.setdefault(into, {}).setdefault(technique, card)
            self._tables[simulated] = table
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

    def near(
        self,
        signature: Signature,
        primary: Bottleneck,
        secondary: Bottleneck | None,
        found: Iterable[PerformanceState] = (),
    ) -> list[Near]:
        """Return the states nearest to a kernel, with how much it is in each.

        Args:
            signature: of the kernel.
            primary: what holds it back first.
            secondary: what comes next.
            found: states discovered since that count as known.
        """
        unknown = [each for each in found if self.state(each.id) is None]
        if not unknown:
            return self._matching.near(signature, primary, secondary)
        standing, _ = joined((*self._states.values(), *unknown))
        return States(standing).near(signature, primary, secondary)

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
        contained = {**self.edits.joined, **self._overlapping}
        here = {state_id, *(each for each in contained if self.standing(each) == state_id)}
        told = (self._judged().deprecated(each, device_kind, op_class) for each in here)
        return frozenset().union(*told)

    def _judged(self) -> Lessons:
        if self._lessons is None:
            self._lessons = Lessons(self._contents, self.at, self._before)
        return self._lessons

"""Edits of the policy as of a sequence number: which stand, and what they make of the seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from ....harness.records.record import Record
from ...records.conditions import Condition
from ...records.edits import (
    AddMacro,
    AddTechnique,
    Deprecate,
    Edit,
    JoinStates,
    RenameState,
    Revert,
    Revise,
    SplitState,
)
from ...records.evidence import NO_GAIN, Evidence
from ...records.optimizations import Optimization, StateOptimization
from ...records.states import PerformanceState
from ..policy.facts import comparable
from ..policy.regression import ONE_TRY
from ..states.conditions import KernelFacts, unmet
from ..states.matching import Part

MOST_CORRECTED_TOGETHER = 0.5
"""Log gain by which all edits together may correct one expectation (about 65 %)."""
ERRORS_APART = 2.0
"""Standard errors by which means differ that are told apart."""
OTHER_OPERATORS = "not for the operators of this task"
"""Why a technique is withheld from every kernel of a task."""
Table = dict[str, dict[str, Optimization]]
"""Optimizations by state and technique."""


class WrittenEdit(Record):
    """An edit as the journal holds it, whichever it is."""

    edit: Edit


class StoredEdit(NamedTuple):
    """An edit, or what undoes one, as it entered the knowledge base."""

    sequence: int
    id: str
    content: Edit | Revert
    rank: tuple[int, str, str] = (0, "", "")
    """In which order edits are applied."""


class Edits:
    """The edits that stand at a sequence number, in the order in which they are applied."""

    def __init__(self, stored: Sequence[StoredEdit], at: int) -> None:
        known = [each for each in stored if each.sequence <= at]
        undone = reverted(stored, at)
        self.standing: list[Edit] = [
            each.content
            for each in sorted(known, key=lambda each: each.rank)
            if not isinstance(each.content, Revert) and each.id not in undone
        ]
        self._revisions: dict[str, list[Revise]] = {}
        for edit in self.standing:
            if isinstance(edit, Revise):
                self._revisions.setdefault(edit.technique, []).append(edit)
        self.undone: tuple[Edit, ...] = tuple(
            each.content
            for each in known
            if not isinstance(each.content, Revert) and each.id in undone
        )
        """Those that were reverted, in order of arrival."""

    def optimizations(
        self, seed: Table, changes: Iterable[StateOptimization], device_kind: str
    ) -> Table:
        """Return the seed's table as whole entries and then revisions of them change it."""
        table = {state: dict(known) for state, known in seed.items()}
        entries: list[tuple[tuple[int, str, str], str, Optimization]] = [
            (each.rank, each.state_id, each.optimization)
            for each in changes
            if comparable(each.device_kind, device_kind)
        ]
        entries += [
            (edit.rank, edit.state, edit.card)
            for edit in self.of(device_kind)
            if isinstance(edit, AddTechnique | AddMacro)
        ]
        for _, state, card in sorted(entries, key=lambda entry: entry[0]):
            table.setdefault(self.joined.get(state, state), {})[card.technique] = card
        for state, under in table.items():
            for technique in under:
                under[technique] = self.revised(under[technique], state, device_kind)
        for gone, into in self.joined.items():
            for technique, card in table.pop(gone, {}).items():
                table.setdefault(into, {}).setdefault(technique, card)
        return table

    def revised(self, card: Optimization, state: str | None, device_kind: str) -> Optimization:
        """Return a card as the revisions of it leave it that speak of a state, or of all."""
        found = [
            edit
            for edit in self._revisions.get(card.technique, ())
            if comparable(edit.device_kind, device_kind)
            and (edit.state is None or self.joined.get(edit.state, edit.state) == state)
        ]
        told: set[str] = set()
        corrected = 0.0
        for edit in found:
            card = _applied(card, edit)
            if edit.correction and not told.issuperset(edit.evidence):
                corrected += edit.correction  # The same rows correct an expectation once.
                told.update(edit.evidence)
        most = MOST_CORRECTED_TOGETHER
        gain = card.prior_log_gain + min(max(corrected, -most), most)
        return card.model_copy(update={"prior_log_gain": gain}) if corrected else card

    def revision(self, technique: str, state: str | None) -> int:
        """Return the number of the newest revision of an entry; 0 where nobody revised it."""
        return max((edit.revision for edit in self.standing if _is_of(edit, technique, state)),
                   default=0)  # fmt: skip

    @cached_property
    def joined(self) -> Mapping[str, str]:
        """States that are another now, by id, with the one that remains: joined ones, and parts
        of which the split was undone."""
        split = {edit.other.id for edit in self.standing if isinstance(edit, SplitState)}
        into = {
            edit.other.id: edit.state
            for edit in self.undone
            if isinstance(edit, SplitState) and edit.other.id not in split
        }
        for edit in self.standing:
            if isinstance(edit, JoinStates):
                into |= {state: edit.into for state in edit.states if state != edit.into}
        return {state: found for state in into if (found := _end(into, state)) is not None}

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """States that were split off, each after the one that it is a part of."""
        found = {
            edit.other.id: Part(
                edit.other.id, self.joined.get(edit.state, edit.state), edit.condition
            )
            for edit in self.standing
            if isinstance(edit, SplitState) and edit.other.id not in self.joined
        }

        def depth(part: Part) -> int:
            wholes: list[str] = []
            while part.whole in found and part.whole not in wholes:
                wholes.append(part.whole)
                part = found[part.whole]
            return len(wholes)

        return tuple(sorted(found.values(), key=lambda each: (depth(each), each.state)))

    def naming(self, state: str) -> int:
        """Return the number of the newest renaming of a state; 0 where nobody renamed it."""
        return max(
            (edit.revision for edit in self.standing
             if isinstance(edit, RenameState) and edit.state == state),
            default=0,
        )  # fmt: skip

    def states(self, known: Iterable[PerformanceState]) -> dict[str, PerformanceState]:
        """Return the states by id: those split off with them, joined ones left out, renamed."""
        found = {state.id: state for state in known}
        for edit in self.standing:
            if isinstance(edit, SplitState):
                found.setdefault(edit.other.id, edit.other)
        for edit in self.standing:
            if isinstance(edit, RenameState) and edit.state in found:
                words = {"name": edit.name, "description": edit.description}
                found[edit.state] = found[edit.state].model_copy(update=words)
        return {
            name: state
            for name, state in found.items()
            if self.joined.get(name, name) == name or self.joined[name] not in found
        }

    def withheld(
        self,
        cards: Mapping[str, Optimization],
        facts: KernelFacts,
        device_kind: str,
        rows: Mapping[str, Sequence[Evidence]],
    ) -> dict[str, str]:
        """Return the techniques that are not to be tried on a kernel, and why.

        Args:
            cards: what could be tried, by name, as it is listed under the state.
            facts: what is known of the kernel.
            device_kind: of what it is measured with.
            rows: evidence of comparable devices, by technique: a pass ends a deprecation.
        """
        why = {}
        for technique, card in cards.items():
            failed = unmet(card.conditions, facts)
            if failed is not None:
                why[technique] = _in_words(failed, facts)
        for edit in self.of(device_kind):
            if (
                isinstance(edit, Deprecate)
                and edit.op_class == facts.get("op_class")
                and edit.writer in (None, facts.get("writer"))
                and not any(passes(edit, row) for row in rows.get(edit.technique, ()))
            ):
                why[edit.technique] = edit.reason
        return why

    def of(self, device_kind: str) -> Iterable[Edit]:
        """Return those that were learned on comparable devices."""
        return (each for each in self.standing if comparable(each.device_kind, device_kind))


def reverted(stored: Sequence[StoredEdit], at: int) -> frozenset[str]:
    """Return the ids of what is undone at a sequence number."""
    undone: set[str] = set()
    for each in reversed(stored):  # What undoes a revert came after it.
        if each.sequence <= at and isinstance(each.content, Revert) and each.id not in undone:
            undone.add(each.content.edit)
    return frozenset(undone)


def passes(deprecation: Deprecate, row: Evidence) -> bool:
    """Say whether a row is a pass where a deprecation says that there is none."""
    return (
        row.log_gain is not None
        and (row.technique, row.op_class) == (deprecation.technique, deprecation.op_class)
        and deprecation.writer in (None, row.author)
        and comparable(row.device_kind, deprecation.device_kind)
    )


def lost(row: Evidence) -> bool:
    """Say whether a try did not pay: it broke the kernel, or made it slower."""
    return row.outcome.breaks_kernel or (row.log_gain is not None and row.log_gain < -NO_GAIN)


def gained(row: Evidence) -> bool:
    """Say whether a try paid."""
    return row.log_gain is not None and row.log_gain > NO_GAIN


def told_apart(here: Iterable[Evidence], there: Iterable[Evidence]) -> bool | None:
    """Say whether a technique gains otherwise in two places, by its tries in either.

    Tries of one task are no independent samples: means of tasks are compared, of two in each place
    at least; with fewer nobody knows. Where all tries broke the kernel in one place alone it is
    told apart too.
    """
    sides = [list(rows) for rows in (here, there)]
    broke = [[row.outcome.breaks_kernel for row in side] for side in sides]
    for one, other in (broke, broke[::-1]):
        if len(one) >= 2 and all(one) and other and not any(other):
            return True
    means: list[list[float]] = []
    for side in sides:
        gains: dict[str, list[float]] = {}
        for row in side:
            if row.log_gain is not None:
                gains.setdefault(row.task_id, []).append(row.log_gain)
        means.append([math.fsum(each) / len(each) for each in gains.values()])
    if min(map(len, means)) < 2:
        return None
    middle = [math.fsum(each) / len(each) for each in means]
    around = math.fsum(
        (value - mean) ** 2 for side, mean in zip(means, middle, strict=True) for value in side
    )
    variance = ONE_TRY + around / (len(means[0]) + len(means[1]) - 2)
    error = math.sqrt(variance * (1 / len(means[0]) + 1 / len(means[1])))
    return abs(middle[0] - middle[1]) > ERRORS_APART * error


def worse_without(row: Evidence, step: Evidence, following: Evidence) -> bool:
    """Say whether a row shows what a step is good for: the one that follows it did worse without
    it before, on the same task."""
    return (
        (row.technique, row.task_id) == (following.technique, step.task_id)
        and (row.earlier is None) == (following.earlier is None)  # Again is another change.
        and row.previous_technique != step.technique
        and (lost(row) or (row.log_gain or 0.0) < (following.log_gain or 0.0) - NO_GAIN)
    )


def alone_as_good(steps: Sequence[Evidence], known: Iterable[Evidence]) -> Evidence | None:
    """Return a try of one of the steps by itself, where they began, that gained as much as all."""
    together = math.fsum(step.log_gain or 0.0 for step in steps)
    names = {step.technique for step in steps}
    return next(
        (
            row for row in known
            if row.technique in names and row.parent_sha256 == steps[0].parent_sha256
            and row.log_gain is not None and row.log_gain >= together - NO_GAIN
        ),
        None,
    )  # fmt: skip


def _applied(card: Optimization, edit: Revise) -> Optimization:
    parameters = {
        name: [
            *[value for value in edit.parameters.get(name, ()) if value in values],
            *[value for value in values if value not in edit.parameters.get(name, ())],
        ]
        for name, values in card.parameters.items()
    }
    return card.model_copy(
        update={
            "conditions": tuple(dict.fromkeys((*card.conditions, *edit.conditions))),
            "notes": " ".join(filter(None, (card.notes, edit.notes))),
            "parameters": parameters,
        }
    )


def _is_of(edit: Edit, technique: str, state: str | None) -> bool:
    if isinstance(edit, Revise):
        return (edit.technique, edit.state) == (technique, state)
    if isinstance(edit, AddTechnique | AddMacro):
        return (edit.card.technique, edit.state) == (technique, state)
    return False


def _end(into: Mapping[str, str], state: str) -> str | None:
    """Return where a chain of joins ends; of a ring, its first by name (None for that one)."""
    met = [state]
    while (following := into.get(met[-1])) is not None:
        if following in met:
            first = min(met[met.index(following) :])
            return first if first != state else None
        met.append(following)
    return met[-1]


def _in_words(failed: Condition, facts: KernelFacts) -> str:
    if failed.feature == "operators":  # Dozens of names, of which the task has none.
        return OTHER_OPERATORS
    return f"its condition does not hold: {failed}{_instead(failed, facts)}"


def _instead(condition: Condition, facts: KernelFacts) -> str:
    fact = facts.get(condition.feature)
    if isinstance(fact, frozenset):
        return ""
    return f" (here {fact:.3g})" if isinstance(fact, float | int) else f" (here {fact})"

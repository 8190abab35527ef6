"""Which edits of the policy may be written: none without evidence, against it, or of the seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ...records.conditions import Condition
from ...records.edits import (
    AddMacro,
    AddTechnique,
    Deprecate,
    Edit,
    JoinStates,
    RenameState,
    Revise,
    SplitState,
)
from ...records.evidence import NO_GAIN, Evidence
from ...records.optimizations import Optimization
from ...records.states import PerformanceState
from ..policy.facts import Rows, comparable
from ..policy.listed import listed_text
from ..snapshots.edits import (
    Table,
    alone_as_good,
    gained,
    lost,
    passes,
    told_apart,
    worse_without,
)
from ..snapshots.snapshot import Snapshot
from ..states.conditions import TELLING_STATES, KernelFacts, evidence_facts, misnamed
from ..states.dimensions import DIMENSIONS
from ..states.distances import distance

DEPRECATING_TRIES = 2
"""Distinct candidates that must have failed before a technique is deprecated."""
MOST_STRENGTH = 1.0
"""Observations that the prior of a card may be worth that an edit adds."""
FEWEST_SPLIT_KERNELS = 2
"""Distinct kernels on either side of the condition that splits a state."""
SEED = "seed"


class Ground(NamedTuple):
    """What edits are checked against."""

    snapshot: Snapshot
    rows: Rows
    """All evidence, by id."""
    facts: Mapping[str, KernelFacts] = {}
    """What more is known of kernels than their rows say, by id of the row."""
    found: Mapping[str, PerformanceState] = {}
    """States that are new since the snapshot, by id."""

    def state(self, name: str) -> PerformanceState | None:
        """Return a state, None where there is no such one."""
        return self.snapshot.state(name) or self.found.get(name)

    def states(self) -> list[PerformanceState]:
        """Return all states."""
        known = self.snapshot.states()
        new = [each for each in self.found.values() if self.snapshot.state(each.id) is None]
        return [*known, *new]

    def place(self, row: Evidence) -> str:
        """Return the id of the state that a row began in, as states are told apart now."""
        return self.snapshot.place(row)

    def cited(self, ids: Iterable[str]) -> list[Evidence]:
        """Return the rows that ids name.

        Raises:
            Refused: one names none.
        """
        found = []
        for name in ids:
            if name not in self.rows:
                raise Refused(f"there is no evidence {name[:12]}")
            found.append(self.rows[name])
        return found

    def of(self, technique: str, device_kind: str, state: str | None = None) -> list[Evidence]:
        """Return all rows of a technique on comparable devices, in a state where one is named."""
        return [
            row
            for row in self.rows.of(technique, device_kind).values()
            if state in (None, self.place(row))
        ]

    def began_in(self, state: str, device_kind: str) -> dict[str, Evidence]:
        """Return the rows that began in a state on comparable devices, by id, as states are told
        apart now."""
        rows = self.rows.began_in(sorted(self.snapshot.told_to_begin(state)), device_kind)
        return {name: row for name, row in rows.items() if self.place(row) == state}

    def facts_of(self, row: Evidence) -> KernelFacts:
        """Return what is known of the kernel that a row's technique was applied to."""
        known = self.facts.get(row.id) if self.facts else None
        return known or evidence_facts(row)


class Refused(Exception):
    """An edit may not be written; the text says why."""


def refusal(edit: Edit, ground: Ground) -> str | None:
    """Return why an edit may not be written; None where it may."""
    try:
        if not edit.evidence:
            raise Refused("it cites no evidence")
        if edit.author == SEED:
            raise Refused("no edit may be the seed's")
        rows = ground.cited(edit.evidence)
        for row in rows:
            if not comparable(row.device_kind, edit.device_kind):
                raise Refused(f"{_named(row)} is of {row.device_kind}, not {edit.device_kind}")
        _CHECKS[type(edit)](edit, rows, ground)
    except Refused as reason:
        return str(reason)
    return None


def grounded(
    edits: Iterable[Edit], ground: Ground
) -> tuple[tuple[Edit, ...], list[tuple[Edit, str]]]:
    """Return the edits that may be written, and the others with the reason why not."""
    kept, refused = [], []
    for edit in edits:
        reason = refusal(edit, ground)
        if reason is None:
            kept.append(edit)
        else:
            refused.append((edit, reason))
    return tuple(kept), refused


def _check_revision(edit: Revise, rows: Sequence[Evidence], ground: Ground) -> None:
    table = ground.snapshot.optimizations(edit.device_kind)
    seed = ground.snapshot.card(edit.technique, edit.device_kind)
    card = table.get(edit.state, {}).get(edit.technique) if edit.state else seed
    card = card or (None if edit.state else _anywhere(table, edit.technique))
    if card is None:
        where = f" under {edit.state}" if edit.state else ""
        raise Refused(f"{edit.technique} is not listed{where}")
    if not (edit.conditions or edit.notes or edit.parameters or edit.correction):
        raise Refused("it changes nothing")
    newest = ground.snapshot.edits.revision(edit.technique, edit.state)
    if edit.revision != newest + 1:
        raise Refused(f"the entry is at revision {newest}: the next is {newest + 1}")
    _require_about(rows, edit.technique, edit.state, ground)
    known = ground.of(edit.technique, edit.device_kind, edit.state)
    if edit.correction:
        _check_correction(edit.correction, card.prior_log_gain, known)
    for condition in edit.conditions:
        _check_condition(condition, rows, ground.of(edit.technique, edit.device_kind), ground)
    for name, values in edit.parameters.items():
        if name not in card.parameters:
            raise Refused(f"{edit.technique} has no parameter {name}")
        for value in values[:1]:
            if not any(gained(row) and row.parameters.get(name) == value for row in rows):
                raise Refused(f"no row cited gained with {name} = {value}")


def _check_correction(correction: float, prior: float, known: Sequence[Evidence]) -> None:
    mean = _mean_gain(known)
    if mean is None:
        raise Refused("none of its tries passed: that is no gain to correct an expectation by")
    if correction > 0 and mean <= NO_GAIN:
        raise Refused(f"it raises what is expected, and its tries lost or gained nothing "
                      f"({math.exp(mean):.2f}x on average)")  # fmt: skip
    if (mean - prior) * correction <= 0:
        raise Refused(
            f"its tries came to {math.exp(mean):.2f}x on average, and it is {listed_text(prior)}: "
            f"that speaks for a correction {'down' if mean < prior else 'up'} of the listed gain"
        )
    if abs(correction) > abs(mean - prior):
        raise Refused("it corrects by more than its tries differ from the listed gain")


def _check_condition(
    condition: Condition, rows: Sequence[Evidence], known: Sequence[Evidence], ground: Ground
) -> None:
    if odd := misnamed(condition):
        raise Refused(odd)
    outside = [row for row in known if condition.holds(ground.facts_of(row)) is False]
    if not any(lost(row) and any(row is each for each in rows) for row in outside):
        raise Refused(f"no row cited lost where {condition} does not hold")
    if row := next((row for row in outside if gained(row)), None):
        gain = math.exp(row.log_gain or 0.0)
        raise Refused(f"{_named(row)} gained {gain:.2f}x where {condition} does not hold")


def _check_technique(edit: AddTechnique, rows: Sequence[Evidence], ground: Ground) -> None:
    card = edit.card
    _check_card(edit, rows, ground)
    if card.steps:
        raise Refused("a sequence needs a proof of each step: add it as a macro")
    _require_about(rows, card.technique, edit.state, ground)
    mean = _mean_gain(ground.of(card.technique, edit.device_kind, edit.state))
    if mean is None or mean <= NO_GAIN:
        raise Refused(f"{card.technique} did not gain there")
    if card.prior_log_gain > mean:
        raise Refused("it expects more than its tries gained")


def _check_card(
    edit: AddTechnique | AddMacro, rows: Sequence[Evidence], ground: Ground
) -> None:
    card = edit.card
    if ground.state(edit.state) is None:
        raise Refused(f"there is no state {edit.state}")
    if card.technique in ground.snapshot.optimizations(edit.device_kind).get(edit.state, {}):
        raise Refused(f"{card.technique} is listed under {edit.state}: revise it")
    if card.prior_strength > MOST_STRENGTH:
        raise Refused("its prior is stronger than one observation")
    if not set(card.prior_evidence) <= set(edit.evidence):
        raise Refused("its prior rests on rows that it does not cite")
    for condition in card.conditions:
        if odd := misnamed(condition):
            raise Refused(odd)


def _check_macro(edit: AddMacro, rows: Sequence[Evidence], ground: Ground) -> None:
    card, device_kind = edit.card, edit.device_kind
    _check_card(edit, rows, ground)
    names = [step.technique for step in card.steps]
    if len(names) < 2 or len(edit.proofs) != len(names):
        raise Refused("a macro has two steps or more, and a proof of each")
    if ground.snapshot.card(card.technique, device_kind) is not None:
        raise Refused(f"{card.technique} is a technique of the seed")
    if [row.technique for row in rows] != names:
        raise Refused(f"the rows cited are not {' then '.join(names)} in this order")
    for before, after in zip(rows, rows[1:], strict=False):
        if before.child_sha256 != after.parent_sha256:
            raise Refused(f"{_named(after)} does not begin where {_named(before)} ended")
    together = math.fsum(row.log_gain or 0.0 for row in rows)
    if any(row.log_gain is None for row in rows) or together <= NO_GAIN:
        raise Refused("its steps gained nothing together")
    known = (row for name in dict.fromkeys(names) for row in ground.of(name, device_kind))
    if single := alone_as_good(rows, known):
        raise Refused(f"{_named(single)} gained as much by itself, on the kernel that it begins at")
    if card.prior_log_gain > together:
        raise Refused("it expects more than its steps gained together")
    for at, proof in enumerate(edit.proofs):
        alone = [row for row in ground.cited(proof.gained) if gained(row)]
        own = any(row.technique == names[at] for row in alone)
        left_out = at + 1 < len(rows) and any(
            worse_without(row, rows[at], rows[at + 1]) for row in ground.cited(proof.without)
        )
        if not (own or left_out):
            raise Refused(
                f"nothing shows that {names[at]} is needed: cite a row in which it gained, or one "
                "in which the step after it did worse without it"
            )


def _check_deprecation(edit: Deprecate, rows: Sequence[Evidence], ground: Ground) -> None:
    _require_about(rows, edit.technique, None, ground)
    for row in ground.of(edit.technique, edit.device_kind):
        if passes(edit, row):
            raise Refused(f"{_named(row)} passed in {edit.op_class}")
    broken = {
        (row.task_id, row.child_sha256)
        for row in rows
        if row.outcome.breaks_kernel
        and row.op_class == edit.op_class
        and edit.writer in (None, row.author)
    }
    if len(broken) < DEPRECATING_TRIES:
        raise Refused(f"it cites {len(broken)} candidates that broke: {DEPRECATING_TRIES} at least")


def _check_join(edit: JoinStates, rows: Sequence[Evidence], ground: Ground) -> None:
    into = _state(edit.into, ground)
    for name in edit.states:
        state = _discovered(name, ground)
        if state.id == into.id:
            raise Refused(f"{name} is {edit.into} already")
        if state.primary != into.primary:
            raise Refused(f"{name} is bound by {state.primary}, {into.id} by {into.primary}")
        if distance(state.centroid, into.centroid) > max(state.spread, into.spread):
            raise Refused(f"{name} and {into.id} do not overlap")
        if not any(ground.place(row) == state.id for row in rows):
            raise Refused(f"no row cited began in {name}")
        for technique in sorted({row.technique for row in rows}):
            sides = [ground.of(technique, edit.device_kind, each.id) for each in (state, into)]
            here, there = map(_mean_gain, sides)
            if here is not None and there is not None and min(here, there) < -NO_GAIN:
                if max(here, there) > NO_GAIN:
                    raise Refused(f"{technique} gains in one of {name} and {into.id} alone")
            if told_apart(*sides):
                raise Refused(f"{technique} gains otherwise in {name} than in {into.id}")


def _check_split(edit: SplitState, rows: Sequence[Evidence], ground: Ground) -> None:
    state = _state(edit.state, ground)
    if edit.other.origin == SEED or ground.state(edit.other.id) is not None:
        raise Refused(f"{edit.other.id} is no new state")
    if len(edit.other.centroid) != len(DIMENSIONS):
        raise Refused("the centroid of the new state is no signature")
    if odd := misnamed(edit.condition):
        raise Refused(odd)
    if edit.condition.feature not in TELLING_STATES:
        raise Refused(f"{edit.condition.feature} is not known when a kernel's state is told")
    if any(ground.place(row) != state.id for row in rows):
        raise Refused(f"not all rows cited began in {state.id}")
    for technique in sorted({row.technique for row in rows}):
        # Of all its tries there, not of the cited alone: none may say otherwise.
        known = ground.of(technique, edit.device_kind, state.id)
        sides = [
            [row for row in known if edit.condition.holds(ground.facts_of(row)) is side]
            for side in (True, False)
        ]
        if any(len({row.parent_sha256 for row in side}) < FEWEST_SPLIT_KERNELS for side in sides):
            continue
        for one, other in (sides, sides[::-1]):
            if all(map(gained, one)) and not any(map(gained, other)):
                return
    raise Refused(
        f"no technique's tries there differ by whether {edit.condition}, with "
        f"{FEWEST_SPLIT_KERNELS} kernels at least on either side"
    )


def _check_name(edit: RenameState, rows: Sequence[Evidence], ground: Ground) -> None:
    _discovered(edit.state, ground)
    if not (edit.name.strip() and edit.description.strip()):
        raise Refused("a state has a name and a description")
    if any(ground.place(row) != edit.state for row in rows):
        raise Refused(f"not all rows cited began in {edit.state}")
    newest = ground.snapshot.edits.naming(edit.state)
    if edit.revision != newest + 1:
        raise Refused(f"its name is at revision {newest}: the next is {newest + 1}")


_CHECKS: Mapping[type, Callable[..., None]] = {
    Revise: _check_revision,
    AddTechnique: _check_technique,
    AddMacro: _check_macro,
    Deprecate: _check_deprecation,
    JoinStates: _check_join,
    SplitState: _check_split,
    RenameState: _check_name,
}


def _state(name: str, ground: Ground) -> PerformanceState:
    found = ground.state(name)
    if found is None:
        raise Refused(f"there is no state {name}")
    return found


def _discovered(name: str, ground: Ground) -> PerformanceState:
    found = _state(name, ground)
    if found.origin == SEED:
        raise Refused(f"{name} is a state of the seed: it stays as it is")
    return found


def _anywhere(table: Table, technique: str) -> Optimization | None:
    return next((under[technique] for under in table.values() if technique in under), None)


def _require_about(
    rows: Sequence[Evidence], technique: str, state: str | None, ground: Ground
) -> None:
    for row in rows:
        if row.technique != technique:
            raise Refused(f"{_named(row)} is about {row.technique}, not {technique}")
        if state not in (None, place := ground.place(row)):
            raise Refused(f"{_named(row)} began in {place}, not {state}")


def _mean_gain(rows: Iterable[Evidence]) -> float | None:
    gains = [row.log_gain for row in rows if row.log_gain is not None]
    return math.fsum(gains) / len(gains) if gains else None


def _named(row: Evidence) -> str:
    return f"row {row.id[:8]}"

"""Edits that a model asks for, as the knowledge base takes them: what they rest on is looked up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from ...harness.errors import told_of
from ...memory.knowledge.changes.edit_checks import Ground
from ...memory.knowledge.changes.state_rules import part_of
from ...memory.knowledge.snapshots.edits import gained, worse_without
from ...memory.records.conditions import Condition
from ...memory.records.edits import (
    MOST_CORRECTED,
    AddMacro,
    Deprecate,
    Edit,
    JoinStates,
    RenameState,
    Revise,
    SplitState,
    StepProof,
)
from ...memory.records.evidence import Evidence
from ...memory.records.optimizations import MacroStep, Optimization
from ...memory.records.states import PerformanceState
from ...tools.techniques.macros import macro_name
from .by_rule import PRIOR_SHARE, PRIOR_STRENGTH, Learned
from .reply import PolicyEdit


class Source(NamedTuple):
    """Where what a model names is looked up."""

    learned: Learned
    ids: Mapping[str, str]
    """Evidence ids by what a model is shown of them."""
    ground: Ground
    author: str

    def evidence(self, said: Sequence[str]) -> tuple[str, ...]:
        """Return the ids that a model's ids mean, each once.

        Raises:
            ValueError: one means no row that was listed.
        """
        found = []
        for name in said:
            meant = {
                identity
                for label, identity in self.ids.items()
                if name and (label.startswith(name) or identity.startswith(name))
            }
            if len(meant) != 1:
                raise ValueError(f"no row listed has the id {name[:40]}")
            found.append(meant.pop())
        return tuple(dict.fromkeys(found))

    def state(self, said: str) -> PerformanceState:
        """Return the state that an id or a name means.

        Raises:
            ValueError: there is none.
        """
        for state in self.learned.snapshot.states():
            if said in (state.id, state.name):
                return state
        raise ValueError(f"there is no state {said[:60]}")


def edits_of(
    replies: Sequence[PolicyEdit], source: Source
) -> tuple[list[Edit], list[tuple[PolicyEdit, str]]]:
    """Return the edits that a model asks for, and those that mean nothing, with the reason."""
    found: list[Edit] = []
    senseless: list[tuple[PolicyEdit, str]] = []
    for said in replies:
        try:
            found.append(_MADE[said.action](said, source))
        except ValidationError as error:
            senseless.append((said, told_of(error)))
        except ValueError as error:
            senseless.append((said, str(error)))
    return found, senseless


def _revision(said: PolicyEdit, source: Source) -> Edit:
    technique, signed = _one(said), _signed(said, source)
    state = _begun_in(signed["evidence"], source) if said.here_alone else None
    correction = 0.0
    if said.factor != 1.0:
        state = _begun_in(signed["evidence"], source)  # What is expected is expected of a state.
        correction = min(max(math.log(said.factor), -MOST_CORRECTED), MOST_CORRECTED)
    return Revise(
        technique=technique,
        state=state,
        conditions=_conditions(said),
        notes=said.notes,
        parameters={each.name: list(each.values) for each in said.parameters},
        correction=correction,
        revision=source.learned.snapshot.edits.revision(technique, state) + 1,
        **signed,
    )


def _macro(said: PolicyEdit, source: Source) -> Edit:
    signed = _signed(said, source)
    rows = [source.learned.rows[name] for name in signed["evidence"]]
    names = tuple(row.technique for row in rows)
    if said.techniques != names:
        raise ValueError(f"the rows cited are {' then '.join(names)}")
    cards = [source.learned.described.get(name) for name in names]
    texts = [card.description for card in cards if card is not None]
    together = math.fsum(row.log_gain or 0.0 for row in rows)
    return AddMacro(
        state=rows[0].state_before,
        card=Optimization(
            technique=macro_name(names),
            description=" Then: ".join(texts) or ", then ".join(names),
            applies_when=cards[0].applies_when if cards[0] else said.reason,
            avoid_when=cards[0].avoid_when if cards[0] else "",
            side_effects="",
            notes=said.notes,
            conditions=_conditions(said),
            steps=tuple(
                MacroStep(technique=row.technique, parameters=row.parameters) for row in rows
            ),
            prior_log_gain=PRIOR_SHARE * max(together, 0.0),
            prior_strength=PRIOR_STRENGTH,
            prior_evidence=signed["evidence"],
        ),
        proofs=tuple(_proof(at, rows, signed["evidence"], source) for at in range(len(rows))),
        **signed,
    )


def _proof(
    at: int, rows: Sequence[Evidence], ids: Sequence[str], source: Source
) -> StepProof:
    """Return what is known of the need of one step of a sequence."""
    own = (ids[at],) if gained(rows[at]) else ()
    without: list[str] = []
    if at + 1 < len(rows):
        following = rows[at + 1]
        without = [
            name
            for name, row in sorted(source.learned.of(following.technique).items())
            if worse_without(row, rows[at], following)
        ]
    return StepProof(gained=own, without=tuple(without))


def _deprecation(said: PolicyEdit, source: Source) -> Edit:
    signed = _signed(said, source)
    authors = {source.learned.rows[name].author for name in signed["evidence"]}
    return Deprecate(
        technique=_one(said),
        op_class=source.learned.op_class,
        writer=authors.pop() if len(authors) == 1 else None,
        **signed,
    )


def _renaming(said: PolicyEdit, source: Source) -> Edit:
    state = source.state(said.states[-1] if said.states else "")
    return RenameState(
        state=state.id,
        name=said.name,
        description=said.description,
        revision=source.learned.snapshot.edits.naming(state.id) + 1,
        **_signed(said, source),
    )


def _joining(said: PolicyEdit, source: Source) -> Edit:
    if len(said.states) < 2:
        raise ValueError("a join names two states or more")
    *joined, into = (source.state(name).id for name in said.states)
    return JoinStates(states=tuple(joined), into=into, **_signed(said, source))


def _splitting(said: PolicyEdit, source: Source) -> Edit:
    state = source.state(said.states[-1] if said.states else "")
    conditions = _conditions(said)
    if len(conditions) != 1 or not (said.name and said.description):
        raise ValueError("a split has one condition, and a name and a description of its part")
    members = [
        row
        for row in source.ground.began_in(state.id, source.learned.device_kind).values()
        if conditions[0].holds(source.ground.facts_of(row)) is True
    ]
    if not members:
        raise ValueError(f"no kernel of {state.id} is known of which {conditions[0]}")
    return SplitState(
        state=state.id,
        condition=conditions[0],
        other=part_of(state, conditions[0], members, said.name, said.description),
        **_signed(said, source),
    )


_MADE: Mapping[str, Callable[[PolicyEdit, Source], Edit]] = {
    "revise": _revision,
    "macro": _macro,
    "deprecate": _deprecation,
    "rename_state": _renaming,
    "join_states": _joining,
    "split_state": _splitting,
}


def _signed(said: PolicyEdit, source: Source) -> dict[str, Any]:
    return source.learned.signed(source.evidence(said.evidence), said.reason, source.author)


def _one(said: PolicyEdit) -> str:
    if len(said.techniques) != 1:
        raise ValueError(f"{said.action} is about one technique")
    return said.techniques[0]


def _begun_in(evidence: Sequence[str], source: Source) -> str:
    states = {source.learned.rows[name].state_before for name in evidence}
    if len(states) != 1:
        raise ValueError("the rows cited began in several states: cite those of one")
    return states.pop()


def _conditions(said: PolicyEdit) -> tuple[Condition, ...]:
    return tuple(
        Condition(feature=each.feature, comparison=each.comparison, value=each.value)
        for each in said.conditions
    )

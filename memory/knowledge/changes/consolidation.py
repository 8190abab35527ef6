"""What a knowledge base says several times, said once: lessons, revisions of entries, states.

Nothing is removed: later entries say what does not stand any more, all evidence stays, and undoing
the update that this makes brings everything back. What is expected of techniques stays what it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...records.edits import (
    MOST_CORRECTED,
    AddMacro,
    AddTechnique,
    Deprecate,
    Edit,
    JoinStates,
    RenameState,
    Revert,
    Revise,
)
from ...records.lessons import Lesson, Withdrawal
from ...records.update import KnowledgeUpdate
from ..knowledge_base import KnowledgeBase
from ..snapshots.edits import MOST_CORRECTED_TOGETHER, Edits, StoredEdit
from ..snapshots.snapshot import Snapshot
from .edit_checks import Ground
from .state_rules import Asked, edits_of_states

RUN = "consolidate"
"""Run that what is written here says it is of."""
AUTHOR = "builtin"


class OneLesson(NamedTuple):
    """Lessons of one key, and the one that stands for them."""

    lesson: Lesson
    several: tuple[Lesson, ...]


class Folded(NamedTuple):
    """Edits, and those that say the same in fewer."""

    edits: tuple[Edit, ...]
    """None where what they said is superseded by others that stand."""
    several: tuple[Edit, ...]


class Consolidation(NamedTuple):
    """What would be said once, not yet applied."""

    lessons: tuple[OneLesson, ...]
    folded: tuple[Folded, ...]
    states: tuple[Edit, ...]
    """Joins, and names that they make untrue."""
    update: KnowledgeUpdate

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.lessons or self.folded or self.states)


def consolidation(knowledge: KnowledgeBase) -> Consolidation:
    """Return what a knowledge base says several times, and what would say it once."""
    snapshot, newest = knowledge.snapshot(), knowledge.sequence()
    lessons = tuple(_lessons(snapshot))
    folded = tuple(_folded(snapshot, knowledge))
    states = tuple(_states(snapshot))
    gone = {each.id for one in lessons for each in one.several} - {
        one.lesson.id for one in lessons
    }
    known = {each.id for one in lessons for each in one.several}
    return Consolidation(
        lessons,
        folded,
        states,
        KnowledgeUpdate(
            run=RUN,
            iteration=newest,
            lessons=tuple(one.lesson for one in lessons if one.lesson.id not in known),
            withdrawals=tuple(Withdrawal(lesson=name, newest=newest) for name in sorted(gone)),
            edits=(*(edit for each in folded for edit in each.edits), *states),
            reverts=tuple(
                Revert(edit=edit.id, author=AUTHOR, at=newest)
                for each in folded for edit in each.several if edit not in each.edits
            ),
        ),
    )  # fmt: skip


# Lessons -------------------------------------------------------------------------------------


def _lessons(snapshot: Snapshot) -> Iterable[OneLesson]:
    speaking = {each.key: each for each in snapshot.lessons() if each.kind != "deprecation"}
    groups: dict[tuple[object, ...], list[Lesson]] = {}
    for lesson in snapshot.written_lessons():
        if lesson.kind not in ("deprecation", "new_state"):  # Each speaks for its own state.
            groups.setdefault(lesson.key, []).append(lesson)
    for key, group in groups.items():
        if len(group) == 1:
            continue
        spoken = speaking[key]
        evidence = tuple(dict.fromkeys(name for each in group for name in each.evidence))
        one = spoken.model_copy(update={"evidence": evidence})
        if spoken.contested and all(one.id != each.id for each in group):
            continue  # Written anew it would count as younger than what speaks against it.
        yield OneLesson(one, tuple(group))


# Edits ---------------------------------------------------------------------------------------


def _folded(snapshot: Snapshot, knowledge: KnowledgeBase) -> Iterable[Folded]:
    groups: dict[tuple[Any, ...], list[Edit]] = {}
    for edit in snapshot.edits.standing:
        if key := _key(edit, snapshot):
            groups.setdefault((*key, edit.device_kind == "simulated"), []).append(edit)
    for group in groups.values():
        if len(group) == 1:
            continue
        made = _one_of(group)
        if made is not None and len(made) < len(group) and _same(made, group, snapshot, knowledge):
            yield Folded(made, tuple(group))


def _key(edit: Edit, snapshot: Snapshot) -> tuple[Any, ...] | None:
    """Return what an edit is about, where several about it may be said in fewer."""
    if isinstance(edit, Revise):
        state = edit.state and snapshot.standing(edit.state)
        return "revise", edit.technique, state, bool(edit.correction)
    if isinstance(edit, Deprecate):
        return "deprecate", edit.technique, edit.op_class, edit.writer
    if isinstance(edit, AddTechnique | AddMacro):
        return "add", edit.card.technique, snapshot.standing(edit.state)
    return ("rename", edit.state) if isinstance(edit, RenameState) else None


def _one_of(group: Sequence[Edit]) -> tuple[Edit, ...] | None:
    newest = group[-1]  # In the order in which they are applied.
    if isinstance(newest, AddTechnique | AddMacro | RenameState):
        return (newest,)
    if isinstance(newest, Deprecate):
        return (newest.model_copy(update={"evidence": _evidence(group)}),)
    revisions = [edit for edit in group if isinstance(edit, Revise)]
    if revisions[-1].correction:
        return _corrections(revisions)
    return (_said_once(revisions),)


def _said_once(group: Sequence[Revise]) -> Revise:
    """Return one revision that says what several say one after the other."""
    parameters: dict[str, list[Any]] = {}
    for edit in group:
        for name, values in edit.parameters.items():
            before = [value for value in parameters.get(name, []) if value not in values]
            parameters[name] = [*values, *before]
    return group[-1].model_copy(
        update={
            "conditions": tuple(dict.fromkeys(each for edit in group for each in edit.conditions)),
            "notes": " ".join(dict.fromkeys(edit.notes for edit in group if edit.notes)),
            "parameters": parameters,
            "evidence": _evidence(group),
            "author": " and ".join(dict.fromkeys(edit.author for edit in group)),
        }
    )  # fmt: skip


def _corrections(group: Sequence[Revise]) -> tuple[Edit, ...] | None:
    """Return as few corrections as come to the same: one may correct by so much, all by so much."""
    counted: list[Revise] = []
    told: set[str] = set()
    for edit in group:
        if not told.issuperset(edit.evidence):
            counted.append(edit)
            told.update(edit.evidence)
    most = MOST_CORRECTED_TOGETHER
    left = min(max(math.fsum(edit.correction for edit in counted), -most), most)
    number = max(1, math.ceil(abs(left) / MOST_CORRECTED - 1e-9))
    if number >= len(group) or number > len(counted) or not left:
        return None
    made: list[Edit] = []
    for at in range(number):
        own = counted[at * len(counted) // number : (at + 1) * len(counted) // number]
        part = min(max(left, -MOST_CORRECTED), MOST_CORRECTED)
        left -= part
        made.append(
            _said_once(own).model_copy(
                update={
                    "correction": round(part, 6),
                    "revision": group[-1].revision - number + 1 + at,
                }
            )
        )
    return tuple(made)


def _same(
    made: Sequence[Edit], group: Sequence[Edit], snapshot: Snapshot, knowledge: KnowledgeBase
) -> bool:
    """Say whether all that is listed is the same with fewer edits as with the several."""
    gone = {edit.id for edit in group}
    kept = [edit for edit in snapshot.edits.standing if edit.id not in gone]
    seed = knowledge.seed().optimizations
    tables = []
    for edits in (snapshot.edits.standing, [*kept, *made]):
        stored = [StoredEdit(1, edit.id, edit, edit.rank) for edit in edits]
        known = Edits(stored, 1)
        tables.append([
            known.optimizations(seed, snapshot.changes(), kind) for kind in ("simulated", "cuda")
        ])  # fmt: skip
    return _rounded(tables[0]) == _rounded(tables[1])


def _rounded(tables: Sequence[Mapping[str, Mapping[str, Any]]]) -> list[Any]:
    return [
        {
            (state, name): card.model_copy(
                update={"prior_log_gain": round(card.prior_log_gain, 5)}
            )
            for state, under in table.items() for name, card in under.items()
        }
        for table in tables
    ]  # fmt: skip


def _evidence(group: Iterable[Edit]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for edit in group for name in edit.evidence))


# States --------------------------------------------------------------------------------------


def _states(snapshot: Snapshot) -> list[Edit]:
    rows = snapshot.rows()
    found: list[Edit] = []
    for kind in ("simulated", "cuda"):

        def sign(evidence: Iterable[str], reason: str, kind: str = kind) -> dict[str, Any]:
            return {
                "evidence": tuple(evidence), "reason": reason, "device_kind": kind,
                "author": AUTHOR, "run": RUN, "iteration": 0,
            }  # fmt: skip

        gone = {
            name
            for edit in found
            if isinstance(edit, JoinStates)
            for name in (*edit.states, edit.into)
        }
        for edit in edits_of_states(Asked(Ground(snapshot, rows), kind, sign), joins_alone=True):
            about = set[str]()
            if isinstance(edit, JoinStates):
                about = {*edit.states, edit.into}
            elif isinstance(edit, RenameState):
                about = {edit.state}
            if gone.isdisjoint(about):
                found.append(edit)
    return found

"""What is said several times is said once: nothing that is read changes, and it can be undone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from found_states import ONE, TWO, tries, with_states
from rows import row

from kernelblaster.memory.knowledge.changes.consolidation import consolidation
from kernelblaster.memory.knowledge.changes.undoing import undo
from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.records.conditions import Condition
from kernelblaster.memory.records.edits import Deprecate, JoinStates, Revise
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.records.update import KnowledgeUpdate
from kernelblaster.tools.techniques.catalogue import knowledge_seed
from kernelblaster.tools.wording.edits import edit_text

SEED = knowledge_seed()
STATE, WIDE = "dram_bandwidth_bound", "vectorize_memory_access"


@pytest.fixture
def knowledge(tmp_path: Path) -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open(tmp_path / "kb", SEED) as opened:
        yield opened


def signed(number: int, revision: int = 1) -> dict[str, Any]:
    return {
        "evidence": (f"row {number}",), "reason": f"reason {number}", "revision": revision,
        "device_kind": "simulated", "author": "builtin", "run": "r", "iteration": number,
    }  # fmt: skip


def lesson(number: int, **changes: Any) -> Lesson:
    return Lesson(**{
        "text": f"Wide loads, said {number} times.", "kind": "correction", "technique": WIDE,
        "state": STATE, "op_class": "elementwise", "claimed_log_gain": 0.2,
        "evidence": (f"row {number}",), "device_kind": "simulated", "author": "builtin",
        "run": "r", "iteration": number, **changes,
    })  # fmt: skip


def revised(number: int, revision: int, **changes: Any) -> Revise:
    return Revise(technique=WIDE, **{"state": STATE, **changes}, **signed(number, revision))


SAID = (
    revised(1, 1, correction=0.25), revised(2, 2, correction=0.25), revised(3, 3, correction=0.25),
    revised(4, 1, state=None, notes="Align rows.", parameters={"width": [2]}),
    revised(5, 2, state=None, notes="Peel the tail.", parameters={"width": [4]},
            conditions=(Condition(feature="lsu", comparison="at_least", value=0.1),)),
    *(Deprecate(technique="fast_math", op_class="softmax", writer="builtin", **signed(n))
      for n in (6, 7)),
)  # fmt: skip
LESSONS = (lesson(1), lesson(2), lesson(3, state="rows_read_repeatedly"),
           lesson(4, op_class="softmax"))  # fmt: skip


def read(knowledge: KnowledgeBase) -> tuple[Any, ...]:
    snapshot = knowledge.snapshot()
    cards = {
        (state, name): card.model_copy(update={"prior_log_gain": round(card.prior_log_gain, 6)})
        for state, under in snapshot.optimizations("simulated").items()
        for name, card in under.items()
    }
    lessons = [(each.text, each.state, each.op_class) for each in knowledge.lessons()]
    return cards, lessons, snapshot.states()


def test_what_is_said_once_reads_as_before_and_is_undone_as_one(knowledge: KnowledgeBase) -> None:
    knowledge.apply_update(KnowledgeUpdate(run="r", iteration=0, edits=SAID, lessons=LESSONS))
    before, number = read(knowledge), knowledge.sequence()
    found = consolidation(knowledge)
    assert knowledge.sequence() == number, "it is told first"
    (one,) = found.lessons
    assert len(one.several) == 3 and one.lesson.state is None
    assert set(one.lesson.evidence) == {"row 1", "row 2", "row 3"}
    by_kind = {each.several[0].edit + str(bool(getattr(each.several[0], "correction", 0))): each
               for each in found.folded}  # fmt: skip
    corrections = by_kind["reviseTrue"].edits
    assert [edit.correction for edit in corrections if isinstance(edit, Revise)] == [0.25, 0.25]
    (said,) = by_kind["reviseFalse"].edits
    assert isinstance(said, Revise)
    assert (said.notes, said.parameters) == ("Align rows. Peel the tail.", {"width": [4, 2]})
    assert set(by_kind["deprecateFalse"].edits[0].evidence) == {"row 6", "row 7"}
    done = str(knowledge.apply_update(found.update))
    assert read(knowledge) == before
    assert len(knowledge.written_lessons()) == 2
    assert consolidation(knowledge).empty, "twice is once"
    knowledge.apply_update(undo(knowledge, done, "person").update)
    assert read(knowledge) == before
    assert len(knowledge.written_lessons()) == len(LESSONS)
    assert [edit_text(edit) for edit in knowledge.snapshot().edits.standing] == [
        edit_text(edit) for edit in sorted(SAID, key=lambda edit: edit.rank)
    ]


def test_a_lesson_that_evidence_contests_is_not_made_younger(knowledge: KnowledgeBase) -> None:
    several = lesson(1), lesson(2, state="rows_read_repeatedly")
    knowledge.apply_update(KnowledgeUpdate(run="r", iteration=0, lessons=several))
    knowledge.add_evidence(
        row(at, -0.4, state_before=state)
        for at, state in enumerate((STATE, "rows_read_repeatedly") * 3)
    )
    assert [each.contested for each in knowledge.lessons()] == [True]
    assert consolidation(knowledge).empty


def test_states_that_are_one_by_evidence_are_joined(knowledge: KnowledgeBase) -> None:
    with_states(knowledge, *tries(ONE, 0.3, "abc", 0), *tries(TWO, 0.3, "cd", 30))
    found = consolidation(knowledge)
    assert isinstance(found.states[0], JoinStates)
    knowledge.apply_update(found.update)
    assert consolidation(knowledge).empty

"""Of the lessons of a key one speaks; which, and how it is marked, is as if all were marked."""

from __future__ import annotations

from pathlib import Path

from rows import row

from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.knowledge.snapshots.contents import StoredLesson
from kernelblaster.memory.knowledge.snapshots.lessons import merged
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.records.update import KnowledgeUpdate
from kernelblaster.tools.techniques.catalogue import knowledge_seed


def lesson(number: int, gain: float | None, **changes: object) -> Lesson:
    values: dict[str, object] = {
        "text": f"told {number}", "kind": "correction", "technique": "vectorize_memory_access",
        "state": "dram_bandwidth_bound", "op_class": "elementwise", "claimed_log_gain": gain,
        "evidence": (row(0).id,), "device_kind": "simulated", "author": "builtin", "run": "r",
        "iteration": number,
    }  # fmt: skip
    return Lesson.model_validate(values | changes)


def test_who_speaks_for_several_states_is_judged_by_its_own(tmp_path: Path) -> None:
    here, there = "dram_bandwidth_bound", "l2_bound"
    lessons = lesson(0, 0.5, state=here, author="openai:m"), lesson(1, 0.5, state=there)
    lost = [row(number, -0.6, state_before=here) for number in range(3)]
    won = [row(number, 0.3, state_before=there) for number in range(3, 5)]
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as base:
        base.apply_update(KnowledgeUpdate(run="r", iteration=0, lessons=lessons))
        base.add_evidence([*lost, *won])
        (spoken,) = base.lessons()
        assert (spoken.text, spoken.state, spoken.contested) == ("told 1", None, False)
        base.add_evidence([row(number, -0.6, state_before=there) for number in range(5, 8)])
        (spoken,) = base.lessons()
        assert (spoken.text, spoken.contested) == ("told 0", True)


def test_the_lesson_that_speaks_is_the_one_that_marking_all_would_find(tmp_path: Path) -> None:
    lessons = (
        lesson(0, -0.5), lesson(1, 0.5), lesson(2, 0.4, author="openai:m"),
        lesson(3, 0.4, state="latency_bound"), lesson(4, 0.3, op_class="softmax"),
        lesson(5, None, kind="deprecation"), lesson(6, None, kind="new_state"),
        lesson(7, 0.5, technique="fast_math"), lesson(8, -0.5, technique="fast_math"),
    )  # fmt: skip
    with KnowledgeBase.open(tmp_path / "kb", knowledge_seed()) as base:
        for at, more in enumerate((lessons[:4], lessons[4:])):
            base.add_evidence([row(10 * at + number, 0.5) for number in range(4)])
            base.apply_update(KnowledgeUpdate(run="r", iteration=at, lessons=more))
            base.add_evidence([
                row(10 * at + number, 0.4, technique=name)
                for name in ("vectorize_memory_access", "fast_math") for number in range(5, 8)
            ])  # fmt: skip
            snapshot = base.snapshot()
            written = snapshot.written_lessons()
            assert {each.contested for each in written} == {False, True}
            stored = [StoredLesson((number,), each) for number, each in enumerate(written)]
            assert snapshot.lessons() == [each.lesson for each in merged(stored)]

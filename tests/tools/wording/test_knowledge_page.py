"""What an engineer reads of a base: figures with how often and where, guesses called guesses."""

from __future__ import annotations

from pathlib import Path

from rows import row

from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.records.conditions import Condition
from kernelblaster.memory.records.edits import Revise
from kernelblaster.memory.records.lessons import Lesson
from kernelblaster.memory.records.update import KnowledgeUpdate
from kernelblaster.tools.techniques.catalogue import knowledge_seed
from kernelblaster.tools.wording.knowledge_page import _Tries, _where, knowledge_page

SEED = knowledge_seed()
STATE = SEED.optimizations["dram_bandwidth_bound"]
WIDE = {"technique": "vectorize_memory_access", "parameters": {"width": 4}}
PAID = row(0, 0.2, **WIDE)
ROWS = (
    PAID,
    PAID.model_copy(update={"run": "measured again"}),
    row(1, 0.1, task_id="u", **WIDE),
    row(2, 0.3, earlier={"width": 2}, **WIDE),
    row(3, None, technique="fast_math"), row(4, None, technique="fast_math", task_id="u"),
    row(5, -0.2, technique="unroll_loop"),
    row(6, 0.4, technique="grid_stride_loop", op_class="softmax"),
    row(7, -0.1, technique="grid_stride_loop", task_id="u"),
    row(8, 1.1, technique="thread_coarsening", device_kind="cuda", gpu="H200"),
)  # fmt: skip
LESSON = Lesson(
    text="Wide loads need aligned rows.", kind="condition", technique="vectorize_memory_access",
    device_kind="simulated", author="openai:m", run="r", iteration=0,
)  # fmt: skip
RULE = Revise(
    technique="unroll_loop", evidence=("a",), reason="it lost elsewhere",
    conditions=(Condition(feature="lsu", comparison="at_least", value=0.4),),
    device_kind="simulated", author="builtin", run="r", iteration=0,
)  # fmt: skip


def test_a_page_tells_what_was_tried_and_never_what_was_not(tmp_path: Path) -> None:
    with KnowledgeBase.open(tmp_path / "kb", SEED) as knowledge:
        page = knowledge_page(knowledge, measured=False)
        assert "Nothing was tried on the simulated GPU yet." in page
        knowledge.add_evidence(ROWS)
        lessons = LESSON, LESSON.model_copy(update={"author": "builtin", "text": "A rule's."})
        knowledge.apply_update(
            KnowledgeUpdate(run="r", iteration=0, lessons=lessons, edits=(RULE,))
        )
        page = knowledge_page(knowledge, measured=False)
        measured = knowledge_page(knowledge, measured=True)
    lines = page.splitlines()

    def of(technique: str) -> str:
        (line,) = [line for line in lines if line.startswith(f"| {technique} |")]
        return line

    assert "8 tries, of which 6 gave right answers, on 2 tasks" in page, "a repeat counts once"
    told = "| 1.16x (1.11x to 1.22x) | 2 on 2 tasks | t width 4 1.22x; u width 4 1.11x |"
    assert told in of(WIDE["technique"])  # type: ignore[arg-type]
    assert of(WIDE["technique"]).endswith("| pays |")  # type: ignore[arg-type]
    assert "| 1.35x | 1 on 1 task |" in of("vectorize_memory_access, again")
    assert "2 wrong answer" in of("fast_math") and "breaks the kernel" in of("fast_math")
    assert of("unroll_loop").endswith("| costs (one task) |")
    assert "depends: softmax 1.49x, elementwise 0.90x" in of("grid_stride_loop")
    (guesses,) = [line for line in lines if line.startswith("Not tried here; guesses")]
    assert not any(each.technique in guesses for each in ROWS[:-1])
    assert "Wide loads need aligned rows. (openai:m; " in page and "A rule's" not in page
    assert "- unroll_loop, revision 1: only where lsu at least 0.4: it lost elsewhere" in page
    card = SEED.techniques["fast_math"]
    assert f"- fast_math: {card.description} Beware: {card.side_effects}" in page
    assert "H200" not in page and "a model of the chip" in page.lower()
    assert "on 1 task;" in measured
    assert "3.00x" in measured and "H100" not in measured and "model of the chip" not in measured


def test_a_try_without_any_gain_is_told_before_one_that_failed() -> None:
    tries = _Tries("split_k", (row(0, None), row(1, -0.1, task_id="u"), row(2, 0.0, task_id="v")))
    assert _where(tries, {}) == "v 1.00x; u 0.90x; t wrong_answer"

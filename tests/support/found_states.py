"""Two states that a run found, near enough to be one, and tries in them."""

from __future__ import annotations

from typing import Any

from rows import row

from kernelblaster.memory.knowledge.knowledge_base import KnowledgeBase
from kernelblaster.memory.knowledge.states.matching import discover
from kernelblaster.memory.knowledge.states.signature import centroid_of
from kernelblaster.memory.records.evidence import Evidence
from kernelblaster.memory.records.states import PerformanceState, Signature
from kernelblaster.memory.records.update import KnowledgeUpdate

ONE, TWO = (
    discover(Signature(values=centroid_of({"xu": xu, "bound_compute": 1.0})), "compute", None)
    for xu in (0.4, 0.8)
)
"""Found by the rule, 0.08 apart: near enough to be one, if evidence says so."""
TECHNIQUES = "fast_math", "unroll_loop"


def tries(
    state: PerformanceState, gain: float, tasks: str, start: int, **changes: Any
) -> list[Evidence]:
    """Return rows of both techniques on a kernel of each task."""
    return [
        row(
            start + 10 * at + number, gain, state_before=state.id, task_id=task,
            technique=technique, op_class="softmax",
            **{"signature": {"xu": 0.7}, **changes},
        )
        for at, technique in enumerate(TECHNIQUES) for number, task in enumerate(tasks)
    ]  # fmt: skip


def with_states(knowledge: KnowledgeBase, *rows: Evidence) -> None:
    knowledge.apply_update(KnowledgeUpdate(run="r", iteration=0, states=(ONE, TWO)))
    knowledge.add_evidence(rows)

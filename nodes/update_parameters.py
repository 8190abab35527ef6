"""Parameter update: rewrite the knowledge base from the gap analysis.

Reads plan, policy_evaluation, gap_analysis; writes parameter_update, best, the next snapshot and
the iteration counter. Last part of the textual gradient (KernelBlaster: parameter update).
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ..memory.knowledge_base import KnowledgeBase
from ..memory.records import PolicyContext
from ..tools.workspace import open_knowledge, open_workspace
from .builtin.parameter_updater import Known, knowledge_update, written_lessons
from .progress import report_progress
from .propose_optimizations import architecture_family
from .records import (
    GapAnalysis,
    KernelPoint,
    ParameterUpdate,
    PolicyEvaluation,
    RunPlan,
    TaskSummary,
    Trajectory,
    best_so_far,
)


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    iteration: int
    knowledge_at: int
    initial: KernelPoint
    trajectories: dict[str, Trajectory]
    policy_evaluation: PolicyEvaluation
    gap_analysis: GapAnalysis


async def update_parameters(state: Reads) -> dict[str, Any]:
    """Write lessons and corrections; take the snapshot and the best the next iteration reads."""
    update, sequence = await asyncio.to_thread(_update, state)
    report_progress(
        "parameter_update",
        iteration=state["iteration"],
        lessons=[lesson.model_dump(mode="json") for lesson in update.lessons],
        moved={name: list(pair) for name, pair in update.moved.items()},
    )
    return {
        "parameter_update": update,
        "knowledge_at": sequence,
        "best": best_so_far(state["initial"], state["trajectories"]),
        "iteration": state["iteration"] + 1,
    }


def _update(state: Reads) -> tuple[ParameterUpdate, int]:
    plan, before = state["plan"], state["knowledge_at"]
    with open_workspace(plan.run_directory, plan.device, plan.gpu) as workspace:
        identity = workspace.measured_by
    context = PolicyContext(
        device_kind=identity.kind,
        gpu=identity.gpu,
        arch=identity.arch,
        family=architecture_family(identity.arch),
        op_class=state["summary"].op_class,
        dtype=state["summary"].dtype,
        harness=identity.harness,
    )
    with open_knowledge(plan.knowledge_directory) as knowledge:
        known = _known(knowledge, state, identity.kind)
        change = knowledge_update(
            state["gap_analysis"],
            known,
            op_class=context.op_class,
            device_kind=identity.kind,
            run=plan.run_id,
        )
        # Its own number, not the newest: after a kill the same update names the same snapshot.
        after = knowledge.apply_update(change)
        moved = {}
        for review in state["policy_evaluation"].reviews:
            where = knowledge.state(review.state_id, after)
            if where is None:
                continue
            (_, old), *_ = knowledge.beliefs(where, [review.technique], context, before)
            (_, new), *_ = knowledge.beliefs(where, [review.technique], context, after)
            moved[f"{review.state_name} / {review.technique}"] = (old.score, new.score)
    names = {gap.state_id: gap.state_name for gap in state["gap_analysis"].gaps} | {
        found.id: found.name for found in known.discovered
    }
    return (
        ParameterUpdate(
            iteration=state["iteration"],
            lessons=written_lessons(change, names),
            moved=moved,
            author="builtin",
        ),
        after,
    )


def _known(knowledge: KnowledgeBase, state: Reads, device_kind: str) -> Known:
    """Return what the iteration's snapshot knew, and what the iteration itself added.

    What other runs wrote meanwhile is left out: repeated after a kill, the update is the same.
    """
    before = knowledge.snapshot(state["knowledge_at"])
    own = {identity for gap in state["gap_analysis"].gaps for identity in gap.evidence}
    evidence = dict(knowledge.evidence.rows(upto=before.at))
    evidence |= {name: row for name, row in knowledge.evidence.rows() if name in own}
    reviewed = {review.state_id for review in state["policy_evaluation"].reviews}
    seen = {found.id for found in before.states()}
    return Known(
        listed=before.optimizations(device_kind),
        techniques=knowledge.seed().techniques,
        evidence=list(evidence.values()),
        discovered=[
            found.model_copy(update={"count": 0})
            for found in sorted(knowledge.states(), key=lambda found: found.id)
            if found.id in reviewed - seen
        ],
    )

"""Parameter update: rewrite the knowledge base from the gap analysis.

Reads plan, policy_evaluation, gap_analysis; writes parameter_update, best, the next snapshot and
the iteration counter. Last part of the textual gradient (KernelBlaster: parameter update).
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ..memory.records import PolicyContext
from ..tools.workspace import open_knowledge, open_workspace
from .builtin.parameter_updater import knowledge_update, written_lessons
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
        identity = workspace.device.identity
    change = knowledge_update(
        state["summary"].op_class, identity.kind, state["gap_analysis"], plan.run_id
    )
    context = PolicyContext(
        device_kind=identity.kind,
        gpu=identity.gpu,
        arch=identity.arch,
        family=architecture_family(identity.arch),
        op_class=state["summary"].op_class,
        dtype=state["summary"].dtype,
    )
    with open_knowledge(plan.knowledge_directory) as knowledge:
        knowledge.apply_update(change)
        after = knowledge.sequence()
        moved = {}
        for review in state["policy_evaluation"].reviews:
            where = knowledge.state(review.state_id)
            if where is None:
                continue
            (_, old), *_ = knowledge.beliefs(where, [review.technique], context, before)
            (_, new), *_ = knowledge.beliefs(where, [review.technique], context, after)
            moved[f"{review.state_name} / {review.technique}"] = (old.score, new.score)
    names = {gap.state_id: gap.state_name for gap in state["gap_analysis"].gaps}
    return (
        ParameterUpdate(
            iteration=state["iteration"],
            lessons=written_lessons(change, names),
            moved=moved,
            author="builtin",
        ),
        after,
    )

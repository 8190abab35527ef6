"""Keep the lessons that stand: those that a person took out of the update are withdrawn.

Reads plan, update and knowledge_at; writes knowledge_at, up to which the next iteration reads, how
many sources were evaluated before it, and takes out of state the lessons that it has read.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ...memory.records import KnowledgeUpdate, Withdrawal
from ...tools.progress import report_progress
from ..common.workspaces import workspace_of
from ..records import ParameterUpdate, RunPlan


class Reads(TypedDict):
    """What this node reads."""

    plan: RunPlan
    iteration: int
    update: ParameterUpdate
    knowledge_at: int


async def keep_lessons(state: Reads) -> dict[str, Any]:
    """Withdraw the lessons of the update that are no longer in it."""
    plan, update, at = state["plan"], state["update"], state["knowledge_at"]
    gone = await asyncio.to_thread(_taken_out, plan, update)
    if gone:
        at = await asyncio.to_thread(_withdraw, plan, update, gone)
        report_progress("note", text=f"{len(gone)} of the lessons withdrawn: no longer in update")
    return {
        "knowledge_at": at,
        "update": update.model_copy(update={"lessons": ()}),
        "evaluations": await asyncio.to_thread(_evaluated, plan),
    }


def _evaluated(plan: RunPlan) -> int:
    with workspace_of(plan) as workspace:
        return workspace.store.count()


def _taken_out(plan: RunPlan, update: ParameterUpdate) -> list[str]:
    """Return the ids of the lessons that parameter update wrote and that its record lacks."""
    with workspace_of(plan) as workspace:
        wrote = [
            ParameterUpdate.model_validate(entry.written["update"])
            for entry in workspace.store.journal.entries()
            if entry.node == "parameter_update"
        ]
    left = {lesson.id for lesson in update.lessons}
    return [
        lesson.id
        for each in wrote
        if each.iteration == update.iteration
        for lesson in each.lessons
        if lesson.id not in left
    ]


def _withdraw(plan: RunPlan, update: ParameterUpdate, lessons: list[str]) -> int:
    """Withdraw lessons from the knowledge base; return the number of the new snapshot."""
    withdrawals = tuple(Withdrawal(lesson=name) for name in lessons)
    change = KnowledgeUpdate(
        run=plan.run_id, iteration=update.iteration, withdrawals=withdrawals
    )
    with workspace_of(plan) as workspace:
        return workspace.knowledge.apply_update(change)

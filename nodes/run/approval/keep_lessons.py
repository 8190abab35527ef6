"""Keep what stands of an update: lessons and edits that a person took out of it are undone.

Reads plan, update and knowledge_at; writes knowledge_at, up to which the next iteration reads, how
many sources were evaluated before it, and takes out of state the lessons and edits that it has
read.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ....memory.records.edits import Revert
from ....memory.records.lessons import Withdrawal
from ....memory.records.update import KnowledgeUpdate
from ....tools.progress import report_progress
from ...common.stopping.approval import PERSON
from ...common.workspaces import workspace_of
from ...records.gradient import ParameterUpdate
from ...records.plan import RunPlan


class Reads(TypedDict):
    """What this node reads."""

    plan: RunPlan
    iteration: int
    update: ParameterUpdate
    knowledge_at: int


async def keep_lessons(state: Reads) -> dict[str, Any]:
    """Undo the lessons and edits of the update that are no longer in it."""
    plan, update, at = state["plan"], state["update"], state["knowledge_at"]
    lessons, edits = await asyncio.to_thread(_taken_out, plan, update)
    if lessons or edits:
        at = await asyncio.to_thread(_undo, plan, update, lessons, edits)
        counts = ((len(lessons), "lessons withdrawn"), (len(edits), "edits undone"))
        told = " and ".join(f"{count} of the {words}" for count, words in counts if count)
        report_progress("note", text=f"{told}: no longer in update")
    return {
        "knowledge_at": at,
        "update": update.model_copy(update={"lessons": (), "edits": ()}),
        "evaluations": await asyncio.to_thread(_evaluated, plan),
    }


def _evaluated(plan: RunPlan) -> int:
    with workspace_of(plan) as workspace:
        return workspace.store.count()


def _taken_out(plan: RunPlan, update: ParameterUpdate) -> tuple[list[str], list[str]]:
    """Return the ids of lessons and edits that parameter update wrote and its record lacks."""
    with workspace_of(plan) as workspace:
        wrote = [
            ParameterUpdate.model_validate(entry.written["update"])
            for entry in workspace.store.journal.entries()
            if entry.node == "parameter_update"
        ]
    left = {lesson.id for lesson in update.lessons} | {edit.id for edit in update.edits}
    own = [each for each in wrote if each.iteration == update.iteration]
    return (
        [lesson.id for each in own for lesson in each.lessons if lesson.id not in left],
        [edit.id for each in own for edit in each.edits if edit.id not in left],
    )


def _undo(
    plan: RunPlan, update: ParameterUpdate, lessons: list[str], edits: list[str]
) -> int:
    """Undo lessons and edits in the knowledge base; return the number of the new snapshot."""
    change = KnowledgeUpdate(
        run=plan.run_id,
        iteration=update.iteration,
        withdrawals=tuple(Withdrawal(lesson=name) for name in lessons),
        reverts=tuple(Revert(edit=name, author=PERSON, at=0) for name in edits),
    )
    with workspace_of(plan) as workspace:
        return workspace.knowledge.apply_update(change)

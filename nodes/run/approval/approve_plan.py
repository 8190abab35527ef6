"""Approve the plan: have a person agree before anything is written or evaluated.

Reads plan and summary; writes plan where a person edited it. A rejected plan is a lesson of the
knowledge base, and ends the run.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypedDict

from pydantic import ValidationError

from ....harness.errors import UserError
from ....tools.models.budgets import CAPS, read_budgets
from ....tools.models.records import BUILTIN
from ....tools.workspace import Workspace
from ...common.history.lesson import write_lesson
from ...common.policies import RULES, by_rounds, editable, loop_in_words
from ...common.stopping.approval import PERSON, decided, is_asked
from ...common.stopping.questions import Decision, Misunderstood, PlanQuestion, cost_of
from ...common.workspaces import opened
from ...records.plan import RunPlan
from ...records.task import TaskSummary


class Reads(TypedDict):
    """What this node reads."""

    plan: RunPlan
    summary: TaskSummary


class Rejected(UserError):
    """A person does not want the run."""


async def approve_plan(state: Reads) -> dict[str, Any]:
    """Stop until a person has decided about the plan, where that is asked for.

    Raises:
        Rejected: the run shall not be.
    """
    plan, summary = state["plan"], state["summary"]
    if not await is_asked(plan, "plan"):
        return {"plan": plan}
    async with opened(plan) as workspace:
        question = await asyncio.to_thread(_question, workspace, plan, summary)
    settled = await decided(plan, question, lambda decision: settle(plan, decision))
    if isinstance(settled, str):
        await asyncio.to_thread(
            write_lesson,
            plan,
            summary,
            f"{loop_in_words(plan)} on {summary.name}: rejected by a person: {settled}",
            kind="condition",
            author=PERSON,
            iteration=0,
        )
        raise Rejected(f"the plan was rejected ({settled}); start a new run with another plan")
    return {"plan": settled}


def settle(plan: RunPlan, decision: Decision) -> RunPlan | str:
    """Return the plan to go on with, or why it is rejected.

    Raises:
        Misunderstood: an edit names something else than loops, or a loop of impossible length.
    """
    if decision.verdict == "reject":
        return decision.reason
    may = editable(plan.policy)
    understood = f"a plan is edited by {', '.join(may) or 'nothing here'}, each a number"
    if unknown := [name for name in decision.edit if name not in may]:
        raise Misunderstood(f"{unknown[0][:80]} cannot be edited: {understood}")
    try:
        return RunPlan.model_validate(plan.model_dump() | decision.edit)
    except ValidationError as error:
        first = error.errors()[0]
        raise Misunderstood(f"{first['loc'][0]}: {first['msg'].lower()}: {understood}") from error


def _question(workspace: Workspace, plan: RunPlan, summary: TaskSummary) -> PlanQuestion:
    asked = {role: plan.models.model_of(role) for role in RULES[plan.policy].roles}
    loops = {name: getattr(plan, name) for name in editable(plan.policy)}
    budgets = read_budgets(workspace.directory).model_dump(exclude_none=True)
    return PlanQuestion(
        run=plan.run,
        asks=f"Begin {loop_in_words(plan)} on {summary.name} for {plan.gpu}?",
        cost=cost_of(workspace),
        answers=(
            "accept",
            "reject:REASON",
            *([f"edit:{json.dumps(loops)}"] if loops else []),
        ),
        task=summary.name,
        op_class=summary.op_class,
        gpu=plan.gpu,
        device=plan.device,
        iterations=plan.iterations,
        rollouts=plan.rollouts,
        steps=plan.steps,
        rounds=plan.rounds if by_rounds(plan.policy) else None,
        models={role: name for role, name in asked.items() if name != BUILTIN},
        budgets={name: budgets[cap] for name, cap in CAPS.items() if cap in budgets},
    )

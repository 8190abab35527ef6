"""Policy evaluation: measured against expected gain of every technique tried in this iteration.

Reads plan and iteration (the steps come from the replay buffer); writes policy_evaluation.
First part of the textual gradient (KernelBlaster: policy evaluation).
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ..tools.workspace import open_knowledge, open_workspace
from .builtin.policy_evaluator import evaluate
from .progress import report_progress
from .records import PolicyEvaluation, RunPlan


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    iteration: int


async def evaluate_policy(state: Reads) -> dict[str, Any]:
    """Compare the iteration's measured gains with those the policy expected."""
    evaluation = await asyncio.to_thread(_evaluate, state["plan"], state["iteration"])
    report_progress(
        "policy_evaluation",
        iteration=state["iteration"],
        techniques=len(evaluation.reviews),
        success_rate=evaluation.success_rate,
        mean_absolute_error=evaluation.mean_absolute_error,
    )
    return {"policy_evaluation": evaluation}


def _evaluate(plan: RunPlan, iteration: int) -> PolicyEvaluation:
    with open_workspace(plan.run_directory, plan.device, plan.gpu) as workspace:
        steps = workspace.store.replay.steps(iteration)
    with open_knowledge(plan.knowledge_directory) as knowledge:
        names = {state.id: state.name for state in knowledge.states(knowledge.sequence())}
    return evaluate(iteration, steps, names)

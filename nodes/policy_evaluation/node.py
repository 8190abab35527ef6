"""Policy evaluation: measured against expected gain of every technique tried in this iteration.

Reads plan, summary, iteration (the steps come from the replay buffer); writes evaluated.
First part of the textual gradient (KernelBlaster: policy evaluation). The figures are computed; a
model adds what they say about the expectations.
"""

from __future__ import annotations

import asyncio
from typing import Any, NotRequired, TypedDict

from ...tools.models.records import BUILTIN, Answer, Message
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.asking import asked, stand_in
from ..common.prompts.iteration import resolve
from ..common.workspaces import workspace_of
from ..records.gradient import PolicyEvaluation
from ..records.plan import RunPlan
from ..records.task import TaskSummary
from ..records.together import AnsweredTogether
from .builtin import evaluate
from .prompt import Figures, evaluation_messages
from .reply import PolicyRemarks, remarks_on


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    iteration: int
    reflected: NotRequired[AnsweredTogether | None]


async def policy_evaluation(state: Reads) -> dict[str, Any]:
    """Compare the iteration's measured gains with those the policy expected."""
    plan = state["plan"]
    figures = await asyncio.to_thread(figures_of, plan, state["iteration"])
    evaluation = figures.evaluation
    if plan.models.model_of("policy_evaluation") != BUILTIN and figures.steps:
        evaluation = remarked(figures, await _ask(state, figures))
    report_progress(
        "policy_evaluation",
        iteration=state["iteration"],
        techniques=len(evaluation.reviews),
        success_rate=evaluation.success_rate,
        mean_absolute_error=evaluation.mean_absolute_error,
        forecasts=evaluation.forecasts and evaluation.forecasts.model_dump(mode="json"),
        summary=evaluation.summary,
        author=evaluation.author,
    )
    return {"evaluated": evaluation}


def figures_of(plan: RunPlan, iteration: int) -> Figures:
    """Return what is computed of an iteration, whoever remarks on it."""
    with workspace_of(plan) as workspace:
        replayed = workspace.store.replay.steps()
        knowledge = workspace.knowledge
        names = {state.id: state.name for state in knowledge.states(knowledge.sequence())}
    steps = [step for step in replayed if step.iteration == iteration and step.evidence_id]
    earlier = [step for step in replayed if step.iteration < iteration]
    return Figures(evaluate(iteration, steps, names, earlier), steps, names)


async def _ask(state: Reads, figures: Figures) -> Answer[PolicyRemarks]:
    def prepare(workspace: Workspace) -> tuple[tuple[Message, ...], type[PolicyRemarks]]:
        return evaluation_messages(workspace, state, figures), remarks_on(figures.steps)

    place, reflected = (state["iteration"],), state.get("reflected")
    return await asked(state["plan"], "policy_evaluation", place, prepare, reflected)


def remarked(figures: Figures, answer: Answer[PolicyRemarks]) -> PolicyEvaluation:
    """Return the figures with a model's remarks, each beside the techniques it speaks of."""
    reply, evaluation = answer.value, figures.evaluation
    if reply is None:
        return evaluation.model_copy(update={"author": stand_in(answer)})
    said: dict[str, list[str]] = {}
    for remark in reply.remarks:
        for step in resolve(remark.evidence, figures.steps):
            said.setdefault(str(step.evidence_id), []).append(remark.text)
    reviews = []
    for review in evaluation.reviews:
        texts = dict.fromkeys(text for name in review.evidence for text in said.get(name, ()))
        reviews.append(review.model_copy(update={"remark": " ".join(texts)}))
    return evaluation.model_copy(
        update={"reviews": tuple(reviews), "summary": reply.summary, "author": answer.author}
    )



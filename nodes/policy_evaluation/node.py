"""Policy evaluation: measured against expected gain of every technique tried in this iteration.

Reads plan, summary, iteration (the steps come from the replay buffer); writes evaluated.
First part of the textual gradient (KernelBlaster: policy evaluation). The figures are computed; a
model adds what they say about the expectations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

from ...memory.records import Step
from ...tools.models.records import BUILTIN, Answer, Message
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.asking import asked, stand_in
from ..common.prompts.experience import gain_text, measured_gain
from ..common.prompts.iteration import resolve, steps_text
from ..common.prompts.render import render
from ..common.replies import checked
from ..common.workspaces import workspace_of
from ..records import PolicyEvaluation, RunPlan, TaskSummary, TechniqueReview
from .builtin import evaluate
from .reply import PolicyRemarks


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    iteration: int


class Figures(NamedTuple):
    """What was computed of an iteration."""

    evaluation: PolicyEvaluation
    steps: list[Step]
    names: dict[str, str]
    """Of states, by id."""


async def policy_evaluation(state: Reads) -> dict[str, Any]:
    """Compare the iteration's measured gains with those the policy expected."""
    plan = state["plan"]
    figures = await asyncio.to_thread(_figures, plan, state["iteration"])
    evaluation = figures.evaluation
    if plan.models.model_of("policy_evaluation") != BUILTIN and figures.steps:
        evaluation = remarked(figures, await _ask(state, figures))
    report_progress(
        "policy_evaluation",
        iteration=state["iteration"],
        techniques=len(evaluation.reviews),
        success_rate=evaluation.success_rate,
        mean_absolute_error=evaluation.mean_absolute_error,
        summary=evaluation.summary,
        author=evaluation.author,
    )
    return {"evaluated": evaluation}


def _figures(plan: RunPlan, iteration: int) -> Figures:
    with workspace_of(plan) as workspace:
        steps = workspace.store.replay.steps(iteration)
        knowledge = workspace.knowledge
        names = {state.id: state.name for state in knowledge.states(knowledge.sequence())}
    return Figures(evaluate(iteration, steps, names), steps, names)


async def _ask(state: Reads, figures: Figures) -> Answer[PolicyRemarks]:
    def prepare(workspace: Workspace) -> tuple[tuple[Message, ...], type[PolicyRemarks]]:
        return _messages(workspace, state, figures), remarks_on(figures.steps)

    return await asked(state["plan"], "policy_evaluation", (state["iteration"],), prepare)


def remarks_on(steps: Sequence[Step]) -> type[PolicyRemarks]:
    """Return the form of remarks on an iteration's steps: their ids must be among them."""

    def check(reply: PolicyRemarks) -> None:
        for remark in reply.remarks:
            resolve(remark.evidence, steps)

    return checked(PolicyRemarks, check)


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


def _messages(workspace: Workspace, state: Reads, figures: Figures) -> tuple[Message, ...]:
    summary, evaluation = state["summary"], figures.evaluation
    overall = f"{evaluation.success_rate:.0%} of {len(figures.steps)} steps passed"
    if evaluation.mean_absolute_error is not None:
        apart = gain_text(evaluation.mean_absolute_error)
        overall += f"; expected and measured gain differ by a factor of {apart} on average"
    return render(
        "policy_evaluation",
        state["plan"].models.context_of("policy_evaluation"),
        name=summary.name,
        op_class=summary.op_class,
        dtype=summary.dtype,
        gpu=workspace.measured_by.gpu,
        iteration=state["iteration"] + 1,
        overall=f"{overall}.",
        reviews="\n".join(_line(review) for review in evaluation.reviews),
        steps=steps_text(figures.steps, figures.names),
    )


def _line(review: TechniqueReview) -> str:
    measured = review.measured_log_gain
    return (
        f'- {review.technique} in "{review.state_name}": expected '
        f"{gain_text(review.expected_log_gain)}, measured "
        f"{'nothing' if measured is None else measured_gain(measured)}; {review.successes} of "
        f"{review.trials} passed"
    )

"""Reflect: what compact agents of one model would each ask after an iteration, asked in one call.

Reads plan, summary, iteration, trajectories, best and knowledge_at; writes reflected, None where
each asks by itself. Figures, gaps and what is learned by rule are computed as the agents compute
them; policy evaluation, gap analysis and parameter update each take their part of the reply as the
typed reply that they would have got.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict, cast

from pydantic import create_model

from ....memory.records.evidence import Step
from ....tools.models.records import Message
from ....tools.workspace import Workspace
from ...common.asking import asked
from ...common.prompts.render import render
from ...common.replies import Reply
from ...common.ties import REFLECTING, reflects_together
from ...gap_analysis.node import analysis_of
from ...gap_analysis.prompt import gap_context
from ...gap_analysis.reply import causes_of
from ...parameter_update.node import learned_of
from ...parameter_update.prompt import Iteration, lesson_context, notes_on
from ...policy_evaluation.node import figures_of
from ...policy_evaluation.prompt import Figures, evaluation_context
from ...policy_evaluation.reply import remarks_on
from ...records.gradient import GapAnalysis
from ...records.kernels import KernelPoint
from ...records.plan import RunPlan
from ...records.task import TaskSummary
from ...records.together import AnsweredTogether
from ...records.trajectories import Trajectory

PARTS = dict(zip(REFLECTING, ("evaluation", "gaps", "update"), strict=True))
"""Of the reply, by role."""


class Reads(TypedDict):
    """What this step reads."""

    plan: RunPlan
    summary: TaskSummary
    iteration: int
    knowledge_at: int
    best: KernelPoint
    trajectories: dict[str, Trajectory]


class Question(NamedTuple):
    """What is asked together."""

    figures: Figures
    analysis: GapAnalysis
    told: Iteration


async def reflect(state: Reads) -> dict[str, Any]:
    """Ask once for all that look back on the iteration, where one model answers for them."""
    plan, place = state["plan"], (state["iteration"],)
    question = await asyncio.to_thread(_question, state) if reflects_together(plan) else None
    if question is None or not question.told.steps:
        return {"reflected": None}

    def prepare(workspace: Workspace) -> tuple[tuple[Message, ...], type[Reply]]:
        form = reflection_on(question.analysis, question.told.steps)
        return _messages(workspace, state, question), form

    answer = await asked(plan, "parameter_update", place, prepare)
    told = {} if answer.value is None else answer.value.model_dump(mode="json")
    return {
        "reflected": AnsweredTogether(
            place=place,
            roles=REFLECTING,
            replies={role: told[part] for role, part in PARTS.items() if part in told},
            author=answer.author,
            reason=answer.reason,
            prompt_sha256=answer.prompt_sha256,
            reply_sha256=answer.reply_sha256,
        )
    }


def _question(state: Reads) -> Question:
    figures = figures_of(state["plan"], state["iteration"])
    known = cast(Any, {**state, "evaluated": figures.evaluation})
    analysis, _ = analysis_of(known)
    return Question(figures, analysis, learned_of(cast(Any, {**known, "analysis": analysis})))


def _messages(workspace: Workspace, state: Reads, question: Question) -> tuple[Message, ...]:
    models, (figures, analysis, told) = state["plan"].models, question
    # One prompt says once what the three have in common.
    return render(
        "reflect",
        max(models.context_of(role) for role in REFLECTING),
        **evaluation_context(workspace, state, figures)
        | gap_context(workspace, state["summary"], analysis, told.steps)
        | lesson_context(state["summary"], analysis, told),
    )


def reflection_on(analysis: GapAnalysis, steps: Sequence[Step]) -> type[Reply]:
    """Return the form of the reply: each part as the agent alone would have it."""
    forms = remarks_on(steps), causes_of(analysis.gaps, steps), notes_on(steps)
    fields: Any = {part: (form, ...) for part, form in zip(PARTS.values(), forms, strict=True)}
    return create_model(
        "Reflection",
        __base__=Reply,
        __doc__="Reply of all that look back on an iteration.",
        **fields,
    )

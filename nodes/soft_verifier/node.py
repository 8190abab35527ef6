"""Soft verification: read the winner beside the reference before it is announced.

Reads plan, summary, initial, confirmation, soft_reviews; writes soft_reviews and, with what a
reader should know, confirmation. A veto needs a reason that a person can check, on a line that
exists; it sends the run back to confirm the next fastest kernel, and becomes a lesson of the
knowledge base, so that the next task is warned. It never stands in for the numeric gate: only what
passed that comes here.
"""

from __future__ import annotations

import asyncio
from typing import Any, NotRequired, TypedDict

from ...tools.models.records import BUILTIN, Answer, Message
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.asking import asked, stand_in
from ..common.lesson import write_veto
from ..common.workspaces import opened
from ..records import Confirmation, KernelPoint, RunPlan, SoftReview, TaskSummary
from .builtin import review as review_builtin
from .prompt import verifier_messages
from .reply import SoftVerdict, objection_text, verdict_on


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    initial: KernelPoint
    confirmation: Confirmation
    soft_reviews: NotRequired[dict[str, SoftReview]]


async def soft_verifier(state: Reads) -> dict[str, Any]:
    """Review the kernel about to be announced; the initial one needs no review."""
    plan, confirmation = state["plan"], state["confirmation"]
    point = confirmation.point
    if point.source_sha256 == state["initial"].source_sha256:
        return {}
    if plan.models.model_of("soft_verifier") == BUILTIN:
        review = await _builtin(state)
    else:
        review = await _by_model(state)
        report_progress(
            "soft_verification",
            vetoed=review.vetoed,
            reasons=review.reasons,
            remarks=review.remarks,
            author=review.author,
        )
    if review.vetoed:
        await asyncio.to_thread(_remember, state, review)
    changes: dict[str, Any] = {"soft_reviews": {point.evaluation_key: review}}
    if review.remarks and not review.vetoed:
        reason = "; ".join(filter(None, (confirmation.reason, *review.remarks)))
        changes["confirmation"] = confirmation.model_copy(update={"reason": reason})
    return changes


async def _builtin(state: Reads) -> SoftReview:
    async with opened(state["plan"]) as workspace:
        task = await asyncio.to_thread(workspace.task, state["summary"].artifact)
    return review_builtin(task, await _source(state))


async def _source(state: Reads) -> str:
    sha256 = state["confirmation"].point.source_sha256
    async with opened(state["plan"]) as workspace:
        return await asyncio.to_thread(workspace.artifacts.get_text, sha256)


async def _by_model(state: Reads) -> SoftReview:
    plan = state["plan"]
    source = await _source(state)

    def prepare(workspace: Workspace) -> tuple[tuple[Message, ...], type[SoftVerdict]]:
        return verifier_messages(workspace, state, source), verdict_on(source)

    place = (len(state.get("soft_reviews") or {}),)
    answer = await asked(plan, "soft_verifier", place, prepare)
    return review_of(answer, source, await _builtin(state))


def _remember(state: Reads, review: SoftReview) -> None:
    """Write down what was vetoed: a kernel that passes every check and may not be announced."""
    why = f"vetoed by its reviewer: {'; '.join(review.reasons)}"
    vetoed = state["confirmation"].point.source_sha256
    write_veto(state["plan"], state["summary"], vetoed, why, review.author)


def review_of(answer: Answer[SoftVerdict], source: str, helped: SoftReview) -> SoftReview:
    """Return a model's verdict with its reasons in words; `helped` is the built-in review."""
    verdict = answer.value
    if verdict is None:
        told = f"no model read this kernel: {answer.author} failed: {answer.reason}"
        return helped.model_copy(
            update={"author": stand_in(answer), "remarks": (*helped.remarks, told)}
        )
    vetoed = verdict.verdict == "veto"
    said = tuple(objection_text(objection, source) for objection in verdict.objections)
    return SoftReview(
        vetoed=vetoed,
        reasons=said if vetoed else (),
        remarks=helped.remarks,
        author=answer.author,
        prompt_sha256=answer.prompt_sha256,
    )



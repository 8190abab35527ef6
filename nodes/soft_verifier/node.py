"""Soft verification: read the winner, whole, beside the reference before it is announced.

Reads plan, summary, initial, confirmation, soft_reviews; writes soft_reviews and, with what a
reader should know, confirmation. An objection names the line it rests on and an input, which
`try_winner` runs: where the kernel is wrong there, it is vetoed, the input is a case of the task
from then on, and the next fastest kernel is confirmed; else the objection is dropped. A veto
becomes a lesson of the knowledge base, so that the next task is warned. It never stands in for the
numeric gate: only what passed that comes here.
"""

from __future__ import annotations

import asyncio
from typing import Any, NotRequired, TypedDict

from ...tools.models.records import BUILTIN, Answer
from ...tools.progress import report_progress
from ..common.asking import stand_in
from ..common.history.lesson import write_veto
from ..common.workspaces import opened
from ..records.kernels import KernelPoint
from ..records.plan import RunPlan
from ..records.result import Confirmation
from ..records.reviews import CandidateReview, SoftReview
from ..records.task import TaskSummary
from .asking import ACCEPTED, acceptances, source_of, verdict_of_model
from .builtin import review as review_builtin
from .claims import Place, tried_claims
from .reply import SoftVerdict, objections_of


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    initial: KernelPoint
    confirmation: Confirmation
    soft_reviews: NotRequired[dict[str, SoftReview]]


async def soft_verifier(state: Reads) -> dict[str, Any]:
    """Review the kernel about to be announced; the initial one was reviewed when it was written."""
    plan, point = state["plan"], state["confirmation"].point
    if point.source_sha256 == state["initial"].source_sha256:
        return {}
    if plan.models.model_of("soft_verifier") == BUILTIN:
        review = await _builtin(state)
    else:
        review = await _by_model(state)
    if review.is_open:  # Nothing is decided before the inputs are run.
        return {"soft_reviews": {point.evaluation_key: review}}
    return await _decided(state, review)


async def try_winner(state: Reads) -> dict[str, Any]:
    """Run the inputs that the review of the winner claims, and decide by what they show."""
    point = state["confirmation"].point
    review = state.get("soft_reviews", {})[point.evaluation_key]
    place: Place = (state["plan"].iterations, 0, 0)
    found = await tried_claims(
        state["plan"], state["summary"], point.source_sha256, review.objections, review.author,
        place,
    )  # fmt: skip
    return await _decided(state, after_trying(review.model_copy(update={"objections": found})))


def after_trying(review: SoftReview) -> SoftReview:
    """Return a review by what its inputs showed: a veto where one stands, with what was found.

    One that the device could not run stands as it was said.
    """
    standing = [each for each in review.objections if each.confirmed is not False]
    return review.model_copy(
        update={
            "vetoed": bool(standing),
            "reasons": tuple(
                f"{each.said}; run where {each.claim}: {each.found}" if each.found else each.said
                for each in standing
            ),
        }
    )


async def _decided(state: Reads, review: SoftReview) -> dict[str, Any]:
    """Return what a review that is closed changes; a veto is remembered."""
    confirmation = state["confirmation"]
    point = confirmation.point
    if review.author != BUILTIN:
        report_progress("soft_verification", **review.told())
    if review.vetoed:
        why = f"vetoed by its reviewer: {'; '.join(review.reasons)}"
        await asyncio.to_thread(
            write_veto, state["plan"], state["summary"], point.source_sha256, why, review.author
        )
    changes: dict[str, Any] = {"soft_reviews": {point.evaluation_key: review}}
    if review.remarks and not review.vetoed:
        reason = "; ".join(filter(None, (confirmation.reason, *review.remarks)))
        changes["confirmation"] = confirmation.model_copy(update={"reason": reason})
    return changes


async def _builtin(state: Reads) -> SoftReview:
    async with opened(state["plan"]) as workspace:
        task = await asyncio.to_thread(workspace.task, state["summary"].artifact)
    return review_builtin(task, await source_of(state["plan"], _winner(state)))


async def _by_model(state: Reads) -> SoftReview:
    plan, helped = state["plan"], await _builtin(state)
    accepted = await _accepted(state)
    if accepted is not None:
        # What it objected to then was refuted, or it would not have been accepted.
        said = {"author": accepted.author, "objections": accepted.objections}
        return helped.model_copy(update={**said, "read_before": True})
    source = await source_of(plan, _winner(state))
    place = (len(state.get("soft_reviews") or {}),)
    answer, _ = await verdict_of_model(plan, state["summary"], source, place, None, None)
    return review_of(answer, source, helped)


def _winner(state: Reads) -> str:
    return state["confirmation"].point.source_sha256


async def _accepted(state: Reads) -> CandidateReview | None:
    key = state["confirmation"].point.evaluation_key
    async with opened(state["plan"]) as workspace:
        found = await asyncio.to_thread(acceptances, workspace, key, None, (ACCEPTED,))
    return found[0] if found else None


def review_of(answer: Answer[SoftVerdict], source: str, helped: SoftReview) -> SoftReview:
    """Return a model's verdict with its objections; `helped` is the built-in review.

    Objections that name an input are open until that is run; others veto at once.
    """
    verdict = answer.value
    if verdict is None:
        told = f"no model read this kernel: {answer.author} failed: {answer.reason}"
        return helped.model_copy(
            update={"author": stand_in(answer), "remarks": (*helped.remarks, told)}
        )
    review = SoftReview(
        vetoed=False,
        remarks=helped.remarks,
        author=answer.author,
        prompt_sha256=answer.prompt_sha256,
        objections=objections_of(verdict, source),
    )
    return review if review.is_open else after_trying(review)

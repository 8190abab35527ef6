"""Reviews of candidates on the way: the first kernel, and the first of a kind that a model wrote.

Before a candidate is measured a model reads it, and the inputs that it claims are run, in a node of
their own. What they show is a case of the task: the gates refuse the candidate by it, and it goes
back to its writer like any other that fails. What no input can show waits for the winner's review.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any, NotRequired, TypedDict

from ...harness.records.outcomes import Outcome
from ...memory.records.evidence import Step
from ...tools.models.records import BUILTIN
from ...tools.progress import report_progress
from ..common.history.authors import is_built_in
from ..common.history.steps import Place, visible_steps
from ..common.stopping.interrupts import awaited
from ..common.workspaces import opened, workspace_of
from ..records.choices import TechniqueChoice
from ..records.kernels import KernelPoint
from ..records.lowering import Attempt
from ..records.plan import RunPlan
from ..records.reviews import CandidateReview
from ..records.rounds import Candidate
from ..records.task import TaskSummary
from .asking import ACCEPTED, CHANGES_ACCEPTED, FIRST, source_of, verdict_of_model
from .claims import tried_claims
from .reply import objections_of


class OfFirst(TypedDict):
    """What the review of the first kernel reads."""

    plan: RunPlan
    summary: TaskSummary
    initial_source: str
    review: NotRequired[CandidateReview | None]


class OfAttempt(TypedDict):
    """What the review of an attempt reads."""

    plan: RunPlan
    summary: TaskSummary
    choice: TechniqueChoice
    parent: KernelPoint
    attempts: dict[int, Attempt]
    place: Place
    review: NotRequired[CandidateReview | None]


class OfRound(TypedDict):
    """What the review of a round's candidate reads."""

    plan: RunPlan
    summary: TaskSummary
    round: int
    candidate: Candidate
    review: NotRequired[CandidateReview | None]


def reviews(plan: RunPlan) -> bool:
    """Say whether a model reads candidates: the built-in verifier objects to nothing."""
    return plan.models.model_of("soft_verifier") != BUILTIN


async def review_first(state: OfFirst) -> dict[str, Any]:
    """Review the first kernel, whoever wrote it."""
    plan, sha256 = state["plan"], state["initial_source"]
    if not reviews(plan):
        return {"review": None}
    return {"review": await _reviewed(plan, state["summary"], sha256, FIRST)}


async def try_first(state: OfFirst) -> dict[str, Any]:
    """Run what the review of the first kernel claims."""
    return await _with_claims(state["plan"], state["summary"], state.get("review"), FIRST)


async def review_attempt(state: OfAttempt) -> dict[str, Any]:
    """Review the newest attempt, where it is the first of its kind."""
    plan, place = state["plan"], state["place"]
    attempt = state["attempts"][len(state["attempts"]) - 1]
    sha256 = str(attempt.source_sha256)
    steps = await asyncio.to_thread(_visible, plan, place)
    if not _is_new(state["choice"].technique, steps):
        return {"review": CandidateReview(source_sha256=sha256)}
    made_of = state["parent"].source_sha256
    return {
        "review": await _reviewed(
            plan, state["summary"], sha256, place, attempt.number, made_of
        )
    }


async def try_attempt(state: OfAttempt) -> dict[str, Any]:
    """Run what the review of the newest attempt claims."""
    review = state.get("review")
    return await _with_claims(state["plan"], state["summary"], review, state["place"])


async def review_candidate(state: OfRound) -> dict[str, Any]:
    """Review the round's candidate, where it is the first of its kind."""
    plan, candidate = state["plan"], state["candidate"]
    sha256, place = candidate.source_sha256, (0, 0, state["round"])
    if sha256 is None or is_built_in(candidate.author) or not reviews(plan):
        return {"review": None}
    steps = await asyncio.to_thread(_visible, plan, place)
    if not _is_new(candidate.technique, steps):
        return {"review": None}
    return {"review": await _reviewed(plan, state["summary"], sha256, place)}


async def try_candidate(state: OfRound) -> dict[str, Any]:
    """Run what the review of the round's candidate claims."""
    place = (0, 0, state["round"])
    return await _with_claims(state["plan"], state["summary"], state.get("review"), place)


def _visible(plan: RunPlan, place: Place) -> list[Step]:
    with workspace_of(plan) as workspace:
        return visible_steps(workspace, place)


def _is_new(technique: str, steps: Iterable[Step]) -> bool:
    """Say whether no kernel of this kind, written by a model, has passed yet."""
    return not any(
        step.technique == technique and not is_built_in(step.author)
        for step in steps
        if step.outcome == Outcome.PASSED
    )


async def _reviewed(
    plan: RunPlan,
    summary: TaskSummary,
    sha256: str,
    place: Place,
    number: int = 0,
    made_of: str = "",
) -> CandidateReview:
    """Return a model's review of a source; none where it does not pass, or nobody answers."""
    source = await source_of(plan, sha256)
    if not await _passes(plan, summary, source):
        return CandidateReview(source_sha256=sha256)
    answer, whole = await verdict_of_model(
        plan, summary, source, (*place, number), place, made_of or sha256
    )
    if answer.value is None:
        return CandidateReview(source_sha256=sha256)
    review = CandidateReview(
        source_sha256=sha256,
        place=place,
        objections=objections_of(answer.value, source),
        author=answer.author,
        whole=whole,
    )
    report_progress(
        "review",
        iteration=place[0],
        rollout=place[1],
        step=place[2],
        objections=[each.said for each in review.objections],
        author=review.author,
    )
    await _keep(plan, summary, review)
    return review


async def _passes(plan: RunPlan, summary: TaskSummary, source: str) -> bool:
    """Say whether a source compiles and verifies; the stages are stored, and not run again."""
    async with opened(plan) as workspace:
        task = await asyncio.to_thread(workspace.task, summary.artifact)
        evaluator = workspace.evaluator
        if (await evaluator.compile(task, source)).outcome is not Outcome.PASSED:
            return False
        verify = partial(evaluator.verify, task, source)
        return (await awaited(plan, workspace, verify)).outcome is Outcome.PASSED


async def _keep(plan: RunPlan, summary: TaskSummary, review: CandidateReview) -> None:
    """Keep an acceptance: of a file that was read whole nobody is asked again as winner."""
    if any(each.confirmed is not False for each in review.objections):
        return
    source = await source_of(plan, review.source_sha256)
    async with opened(plan) as workspace:
        task = await asyncio.to_thread(workspace.task, summary.artifact)
        key = workspace.evaluator.key(task, source)
        body = review.model_dump_json()
        kind = ACCEPTED if review.whole else CHANGES_ACCEPTED
        stage = " ".join((kind, *map(str, review.place)))
        await asyncio.to_thread(workspace.store.put_stage, key, stage, body)


async def _with_claims(
    plan: RunPlan, summary: TaskSummary, review: CandidateReview | None, place: Place
) -> dict[str, Any]:
    assert review is not None
    found = await tried_claims(
        plan, summary, review.source_sha256, review.objections, review.author, place
    )
    tried = review.model_copy(update={"objections": found})
    await _keep(plan, summary, tried)
    return {"review": tried}

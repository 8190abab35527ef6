"""The rounds of policies that write one candidate each: begun, evaluated, recorded.

A round is a step of the replay buffer: iteration 0, rollout 0, step = round. Its parent is the last
kernel that passed, whatever failed in between, so that every gain is of two measured kernels.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, TypedDict

from ....harness.records.outcomes import Outcome
from ....memory.records.evidence import Step
from ....tools.models.records import BUILTIN
from ....tools.progress import report_progress
from ...common.history.points import kernel_point
from ...common.policies import RULES
from ...common.stopping.caps import search_over
from ...common.stopping.interrupts import awaited
from ...common.workspaces import opened, workspace_of
from ...records.accounts import Said, StepAccount
from ...records.kernels import KernelPoint, faster
from ...records.plan import RunPlan
from ...records.rounds import Candidate, Feedback
from ...records.task import TaskSummary


class Begins(TypedDict):
    """What the first of these nodes reads."""

    plan: RunPlan
    initial: KernelPoint


class Evaluates(TypedDict):
    """What evaluation reads."""

    plan: RunPlan
    summary: TaskSummary
    round: int
    current: KernelPoint
    candidate: Candidate


class Records(TypedDict):
    """What the last of these nodes reads."""

    plan: RunPlan
    round: int
    initial: KernelPoint
    current: KernelPoint
    best: KernelPoint
    latest: Candidate | None
    candidate: Candidate
    feedback: Feedback | None


async def begin_rounds(state: Begins) -> dict[str, Any]:
    """Stand at the start: counters set here, because a reused thread keeps its old state."""
    return {
        "round": 0,
        "current": state["initial"],
        "latest": started_from(state["plan"], state["initial"]),
        "candidate": None,
        "feedback": None,
        "ended": await search_over(state["plan"]),
    }


def started_from(plan: RunPlan, initial: KernelPoint) -> Candidate | None:
    """Return a person's first kernel as what a round starts from; None where there is none."""
    return standing_for(initial) if plan.start else None


def standing_for(point: KernelPoint) -> Candidate:
    """Return a kernel that passed as what a round starts from."""
    return Candidate(
        technique=point.technique or "start",
        source_sha256=point.source_sha256,
        author=point.author,
        outcome=Outcome.PASSED,
        evaluation_key=point.evaluation_key,
        point=point,
    )


async def evaluate_candidate(state: Evaluates) -> dict[str, Any]:
    """Compile, verify, profile and time what the round wrote; stored stages are not repeated."""
    plan, candidate, current = state["plan"], state["candidate"], state["current"]
    if candidate.source_sha256 is None:
        return {"candidate": candidate}
    sha256 = candidate.source_sha256
    async with opened(plan) as workspace:
        task, source = await asyncio.to_thread(
            lambda: (
                workspace.task(state["summary"].artifact),
                workspace.artifacts.get_text(sha256),
            )
        )
        evaluation = await awaited(
            plan, workspace, lambda: workspace.evaluator.evaluate(task, source)
        )
    point = None
    if evaluation.outcome is Outcome.PASSED:
        point = kernel_point(
            evaluation, candidate.author, depth=current.depth + 1, technique=candidate.technique
        )
    judged = {
        "outcome": evaluation.outcome,
        "reason": evaluation.reason,
        "evaluation_key": evaluation.key,
        "point": point,
    }
    return {"candidate": Candidate.model_validate(dict(candidate) | judged)}


async def record_round(state: Records) -> dict[str, Any]:
    """Write the round to the replay buffer, and say what the next one starts from."""
    plan, candidate = state["plan"], state["candidate"]
    step = _step(state)
    await asyncio.to_thread(_add, plan, step, _account(state))
    best = faster(state["best"], candidate.point)
    report_progress(
        "step",
        iteration=0,
        rollout=0,
        step=state["round"],
        round=state["round"],
        state=step.bottleneck_before,
        technique=step.technique,
        outcome=step.outcome,
        reason=step.reason,
        log_gain=step.log_gain,
        expected_log_gain=step.expected_log_gain,
        accepted=candidate.point is not None,
        best_microseconds=best.microseconds,
        state_author=step.state_author,
        choice_author=step.choice_author,
        author=step.author,
    )
    current = candidate.point or state["current"]
    latest: Candidate | None
    if candidate.source_sha256:
        latest = candidate
    elif current.depth:  # Nothing was written: the next round goes on from what passed last.
        latest = standing_for(current)
    else:
        latest = state["latest"]
    if not RULES[plan.policy].remembers:
        latest, current = started_from(plan, state["initial"]), state["initial"]
    return {
        "round": state["round"] + 1,
        "best": best,
        "current": current,
        "latest": latest,
        "ended": _ended(plan, candidate, latest) or await search_over(plan),
    }


def _ended(plan: RunPlan, candidate: Candidate, latest: Candidate | None) -> str:
    """Return why no more rounds follow; empty where some may."""
    outcome = candidate.outcome
    if outcome and outcome.has_candidate and not outcome.is_verdict:
        return f"no other source would change that: {candidate.reason}"
    if RULES[plan.policy].modes == {"correction"} and latest and latest.point:
        return "nothing is left to correct"
    return ""


def _step(state: Records) -> Step:
    plan, candidate, parent = state["plan"], state["candidate"], state["current"]
    feedback, child = state["feedback"], candidate.point
    assert candidate.outcome is not None
    judge = feedback.author if feedback else BUILTIN
    return Step(
        run=plan.run_id,
        iteration=0,
        rollout=0,
        step=state["round"],
        technique=candidate.technique,
        parameters=candidate.parameters,
        expected_log_gain=candidate.expected_log_gain,
        outcome=candidate.outcome,
        log_gain=math.log(parent.microseconds / child.microseconds) if child else None,
        parent_sha256=parent.source_sha256,
        child_sha256=candidate.source_sha256,
        author=candidate.author,
        state_id=parent.bottleneck,
        state_author=judge,
        choice_author=judge if feedback else candidate.author,
        reason=candidate.reason or candidate.note,
        microseconds_before=parent.microseconds,
        microseconds_after=child.microseconds if child else None,
        bottleneck_before=parent.bottleneck,
        bottleneck_after=child.bottleneck if child else None,
        evaluation_key=candidate.evaluation_key,
    )


def _account(state: Records) -> StepAccount:
    """Return what Judge and Coder said, for who reads the run afterwards."""
    candidate, feedback = state["candidate"], state["feedback"]
    judged = f"{feedback.finding} → {feedback.method}: {feedback.advice}" if feedback else ""
    return StepAccount(
        state_name=state["current"].bottleneck,
        said=(
            Said(role="judge", text=judged, author=feedback.author if feedback else BUILTIN),
            Said(role="coder", text=candidate.note, author=candidate.author),
        ),
    )


def _add(plan: RunPlan, step: Step, account: StepAccount) -> None:
    with workspace_of(plan) as workspace:
        kept = workspace.artifacts.put_text(account.model_dump_json())
        workspace.store.replay.add([step.model_copy(update={"account_sha256": kept})])

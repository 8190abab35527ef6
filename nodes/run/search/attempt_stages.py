"""Compile, verify and profile the attempt at hand: one graph node each, one evaluation in all.

Each reads plan, summary and attempts; each writes the stage's verdict, which the router reads.
A stage's result is stored before the node returns, so that a kill never repeats a finished one.
"""

from __future__ import annotations

import asyncio
from typing import Any, NotRequired, TypedDict

from ....harness.devices.gates import Passage
from ....harness.records.evaluations import Evaluation, StageResult
from ....harness.records.outcomes import Outcome
from ....harness.records.tasks import Task
from ....tools.evaluation.evaluator import Evaluator
from ....tools.models.records import BUILTIN
from ....tools.progress import at_place, report_progress
from ....tools.workspace import Workspace
from ...common.history.points import kernel_point
from ...common.stopping.caps import evaluation_allowed
from ...common.stopping.interrupts import awaited
from ...common.workspaces import opened
from ...records.choices import TechniqueChoice
from ...records.kernels import KernelPoint
from ...records.lowering import Attempt, LoweringResult, ToolRound
from ...records.plan import RunPlan
from ...records.task import TaskSummary


class Reads(TypedDict):
    """What these nodes read."""

    plan: RunPlan
    summary: TaskSummary
    parent: KernelPoint
    choice: TechniqueChoice
    attempts: dict[int, Attempt]
    place: tuple[int, int, int]
    rounds: NotRequired[tuple[ToolRound, ...]]


async def compile_candidate(state: Reads) -> dict[str, Any]:
    """Compile the newest attempt for both variants, with NVIDIA's compiler."""
    async with opened(state["plan"]) as workspace:
        task, source = await _subject(workspace, state)
        evaluator = workspace.evaluator
        await evaluation_allowed(state["plan"], evaluator.key(task, source))
        verdict = await evaluator.compile(task, source)
        await _conclude_failure(evaluator, task, source, verdict)
    return _verdict(state, verdict)


async def verify_candidate(state: Reads) -> dict[str, Any]:
    """Run the newest attempt on every case and compare with PyTorch."""
    async with opened(state["plan"]) as workspace:
        task, source = await _subject(workspace, state)
        evaluator = workspace.evaluator
        verdict = await awaited(
            state["plan"], workspace, lambda: evaluator.verify(task, source)
        )
        await _conclude_failure(evaluator, task, source, verdict)
    return _verdict(state, verdict)


async def profile_candidate(state: Reads) -> dict[str, Any]:
    """Profile and time the newest attempt at full dimensions; store its evaluation."""
    async with opened(state["plan"]) as workspace:
        task, source = await _subject(workspace, state)
        evaluator = workspace.evaluator
        verified = await evaluator.verify(task, source)  # Stored: read, not run.
        measured = await awaited(
            state["plan"], workspace, lambda: evaluator.profile(task, source)
        )
        await evaluator.conclude(task, source, Passage(verified=verified, measured=measured))
    return _verdict(state, measured.stage)


async def conclude_lowering(state: Reads) -> dict[str, Any]:
    """Say what lowering came to: the child that passed, or why there is none."""
    attempts = state["attempts"]
    written = [attempt for attempt in attempts.values() if attempt.source_sha256]
    if not written:
        last = attempts[len(attempts) - 1]
        result = LoweringResult(
            applied=False,
            # A model that declines has replied; one without a reply says nothing of the technique.
            outcome=Outcome.NOT_APPLICABLE
            if last.author == BUILTIN or last.reply_sha256
            else Outcome.NO_ANSWER,
            reason=last.reason,
            author=last.author,
            prompt_sha256=last.prompt_sha256,
            attempts=tuple(attempts.values()),
        )
    else:
        result = await _result(state, written[-1], repairs=len(written) - 1)
    report_progress(
        "lowered",
        **at_place(state["place"]),
        technique=state["choice"].technique,
        parameters=result.parameters,
        outcome=result.outcome,
        reason=result.reason,
        microseconds=result.point.microseconds if result.point else None,
        gain=state["parent"].microseconds / result.point.microseconds if result.point else None,
    )
    drafts = dict.fromkeys(
        sha256 for each in state.get("rounds", ()) for sha256 in each.evaluated
    )
    return {"result": result.model_copy(update={"drafts": tuple(drafts)})}


async def _result(state: Reads, attempt: Attempt, repairs: int) -> LoweringResult:
    assert attempt.source_sha256 is not None
    async with opened(state["plan"]) as workspace:
        key, evaluation = await asyncio.to_thread(_evaluated, workspace, state, attempt)
    point = None
    if evaluation.outcome is Outcome.PASSED:
        point = kernel_point(
            evaluation,
            attempt.author,
            depth=state["parent"].depth + 1,
            technique=state["choice"].technique,
        )
    return LoweringResult(
        applied=True,
        outcome=evaluation.outcome.value,
        reason=evaluation.reason,
        point=point,
        source_sha256=attempt.source_sha256,
        evaluation_key=key,
        parameters=attempt.parameters,
        repairs=repairs,
        author=attempt.author,
        prompt_sha256=attempt.prompt_sha256,
        attempts=tuple(state["attempts"].values()),
    )


def _evaluated(
    workspace: Workspace, state: Reads, attempt: Attempt
) -> tuple[str, Evaluation]:
    key = workspace.evaluator.key(*_read(workspace, state, attempt))
    return key, workspace.evaluation(key)


async def _subject(workspace: Workspace, state: Reads) -> tuple[Task, str]:
    """Return the task and the source of the newest attempt."""
    newest = state["attempts"][len(state["attempts"]) - 1]
    return await asyncio.to_thread(_read, workspace, state, newest)


def _read(workspace: Workspace, state: Reads, attempt: Attempt) -> tuple[Task, str]:
    assert attempt.source_sha256 is not None
    task = workspace.task(state["summary"].artifact)
    return task, workspace.artifacts.get_text(attempt.source_sha256)


async def _conclude_failure(
    evaluator: Evaluator, task: Task, source: str, verdict: StageResult
) -> None:
    if verdict.outcome is not Outcome.PASSED:
        await evaluator.conclude(task, source, Passage(verified=verdict))


def _verdict(state: Reads, verdict: StageResult) -> dict[str, Any]:
    """Write the verdict into the newest attempt; state keeps the outcome and one line."""
    number = len(state["attempts"]) - 1
    judged = state["attempts"][number].model_copy(
        update={"outcome": verdict.outcome, "reason": verdict.reason}
    )
    if verdict.outcome is not Outcome.PASSED:
        report_progress(
            "rejected",
            **at_place(state["place"]),
            technique=state["choice"].technique,
            number=number,
            outcome=verdict.outcome.value,
            reason=verdict.reason,
        )
    return {"attempts": {**state["attempts"], number: judged}}

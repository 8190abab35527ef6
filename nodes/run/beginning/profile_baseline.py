"""Profile the baseline: verify and measure the initial kernel; everything is compared with it.

Reads plan, summary, initial_source, initial_author and known; writes initial, best, the knowledge
snapshot and how many sources were evaluated. Where the search begins with a known kernel, that is
noted as the step before the first iteration's: from the initial kernel to it.
"""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from ....harness.errors import UserError
from ....harness.records.evaluations import Evaluation
from ....harness.records.outcomes import Outcome, outcome_in_words
from ....harness.records.tasks import Task
from ....memory.records.evidence import Step
from ....tools.models.records import BUILTIN
from ....tools.progress import report_progress
from ...common.history.points import kernel_point
from ...common.stopping.interrupts import awaited
from ...common.workspaces import opened
from ...records.kernels import KNOWN_KERNEL, KernelPoint, KnownStart, faster
from ...records.plan import RunPlan
from ...records.task import TaskSummary


class Reads(TypedDict):
    """What this node reads."""

    plan: RunPlan
    summary: TaskSummary
    initial_source: str
    initial_author: NotRequired[str]
    known: NotRequired[KnownStart | None]


async def profile_baseline(state: Reads) -> dict[str, Any]:
    """Evaluate the initial kernel and take the first snapshot of the knowledge base.

    Raises:
        UserError: the initial kernel does not pass, and no known one does.
    """
    plan, author = state["plan"], state.get("initial_author", "")
    known = state.get("known") or KnownStart()
    async with opened(plan) as workspace:
        task, source = await asyncio.to_thread(
            lambda: (
                workspace.task(state["summary"].artifact),
                workspace.artifacts.get_text(state["initial_source"]),
            )
        )
        evaluator = workspace.evaluator
        # A large knowledge base takes a second to be read: as long as the device is at work.
        evaluation, snapshot = await asyncio.gather(
            awaited(
                plan, workspace, lambda: evaluator.evaluate(task, source, measured_anew=True)
            ),
            asyncio.to_thread(workspace.knowledge.snapshot),
        )
        if evaluation.outcome is Outcome.PASSED:
            point = kernel_point(evaluation, author)
        elif known.point is not None:
            point = known.point.model_copy(update={"depth": 0, "technique": ""})
            words = outcome_in_words(evaluation.outcome, evaluation.reason)
            report_progress("note", text=f"{_by(author)} does not pass ({words}): the known stands")
        else:
            stored = workspace.artifacts.path_of(state["initial_source"])
            raise UserError(_refused(state, task, evaluation, stored))
        best = point
        if known.point is not None and known.point.source_sha256 != point.source_sha256:
            step = _to_the_known(plan, point, known, known.point)
            await asyncio.to_thread(workspace.store.replay.add, [step])
            best = faster(point, known.point)
        evaluations = await asyncio.to_thread(workspace.store.count)
    report_progress(
        "baseline",
        microseconds=point.microseconds,
        bottleneck=point.bottleneck,
        provenance=point.provenance,
        facts=evaluation.facts,
        begins_at=best.microseconds,
    )
    return {
        "initial": point,
        "best": best,
        "knowledge_at": snapshot.at,
        "evaluations": evaluations,
    }


def _to_the_known(
    plan: RunPlan, initial: KernelPoint, known: KnownStart, point: KernelPoint
) -> Step:
    """Return the step from the initial kernel to the known one, which no iteration took."""
    return Step(
        run=plan.run_id,
        iteration=-1,
        rollout=0,
        step=0,
        technique=KNOWN_KERNEL,
        parameters={"after": list(known.techniques)} if known.techniques else {},
        expected_log_gain=math.log(known.gain_then) if known.gain_then else 0.0,
        outcome=Outcome.PASSED,
        log_gain=math.log(initial.microseconds / point.microseconds),
        parent_sha256=initial.source_sha256,
        child_sha256=point.source_sha256,
        author=point.author,
        state_id=initial.bottleneck,
        state_author=BUILTIN,
        choice_author=BUILTIN,
        reason=known.told,
        microseconds_before=initial.microseconds,
        microseconds_after=point.microseconds,
        bottleneck_before=initial.bottleneck,
        bottleneck_after=point.bottleneck,
        evaluation_key=point.evaluation_key,
    )


def _refused(state: Reads, task: Task, evaluation: Evaluation, stored: Path) -> str:
    """Return why a run has nothing to begin with, and what a person can do."""
    start = state["plan"].start
    origin = f"--start {start}" if start else _by(state.get("initial_author", ""))
    words = outcome_in_words(evaluation.outcome, evaluation.reason)
    return f"{origin} does not pass for {task.name}: {words}" + (
        "" if start else f"; its source is {stored}; give a first kernel with --start KERNEL.cu"
    )


def _by(author: str) -> str:
    """Return the initial kernel in words, with who wrote it."""
    if author == BUILTIN:
        return "the built-in initial kernel"
    return f"the initial kernel, written by {author}," if author else "the initial kernel"

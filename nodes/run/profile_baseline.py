"""Profile the baseline: verify and measure the initial kernel; everything is compared with it.

Reads plan, summary, initial_source and initial_author; writes initial, best, the knowledge snapshot
and how many sources were evaluated.
"""

from __future__ import annotations

import asyncio
from typing import Any, NotRequired, TypedDict

from ...harness.errors import UserError
from ...harness.records import Outcome, outcome_in_words
from ...tools.models.records import BUILTIN
from ...tools.progress import report_progress
from ..common.interrupts import awaited
from ..common.points import kernel_point
from ..common.workspaces import opened
from ..records import RunPlan, TaskSummary


class Reads(TypedDict):
    """What this node reads."""

    plan: RunPlan
    summary: TaskSummary
    initial_source: str
    initial_author: NotRequired[str]


async def profile_baseline(state: Reads) -> dict[str, Any]:
    """Evaluate the initial kernel and take the first snapshot of the knowledge base.

    Raises:
        UserError: the initial kernel does not pass.
    """
    plan, author = state["plan"], state.get("initial_author", "")
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
            awaited(plan, workspace, lambda: evaluator.evaluate(task, source)),
            asyncio.to_thread(workspace.knowledge.snapshot),
        )
        evaluations = await asyncio.to_thread(workspace.store.count)
    if evaluation.outcome is not Outcome.PASSED:
        origin = f"--start {plan.start}" if plan.start else _by(author)
        words = outcome_in_words(evaluation.outcome, evaluation.reason)
        raise UserError(
            f"{origin} does not pass for {task.name}: {words}"
            + ("" if plan.start else "; give a first kernel with --start KERNEL.cu")
        )
    point = kernel_point(evaluation, author)
    report_progress(
        "baseline",
        microseconds=point.microseconds,
        bottleneck=point.bottleneck,
        provenance=point.provenance,
        facts=evaluation.facts,
    )
    return {
        "initial": point,
        "best": point,
        "knowledge_at": snapshot.at,
        "evaluations": evaluations,
    }


def _by(author: str) -> str:
    """Return the initial kernel in words, with who wrote it."""
    if author == BUILTIN:
        return "the built-in initial kernel"
    return f"the initial kernel, written by {author}," if author else "the initial kernel"



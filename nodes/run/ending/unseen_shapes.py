"""Unseen shapes: the winner at sizes that the search never saw, once it stands.

Reads plan, summary and confirmation; writes shapes. A candidate has its sizes as constants of
task.cuh: it holds at a shape where the same source, compiled for that shape, passes the gates.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, TypedDict

from ....harness.devices.deferred import ResultAwaited
from ....harness.devices.gates import Gates
from ....harness.errors import UserError
from ....harness.records.outcomes import Outcome
from ....harness.records.tasks import Task
from ....harness.task.unseen import changed_dimensions, unseen_tasks
from ....tools.evaluation.evaluator import Evaluator
from ....tools.progress import report_progress
from ...common.workspaces import opened
from ...records.plan import RunPlan
from ...records.result import Confirmation, ShapeCheck
from ...records.task import TaskSummary
from .circumstances import baselines_of

SHAPES_SECONDS = 120.0
"""After which no other shape is begun."""


class Reads(TypedDict):
    """What this node reads."""

    plan: RunPlan
    summary: TaskSummary
    confirmation: Confirmation


async def unseen_shapes(state: Reads) -> dict[str, Any]:
    """Compile, verify and time what is announced at as many other shapes as the plan says.

    What another host would have to say is not asked for: the run would have to wait once more. It
    is said then that the kernel compiles there and can be launched.
    """
    plan, checks = state["plan"], list[ShapeCheck]()
    if not plan.shapes:
        return {"shapes": ()}
    async with opened(plan) as workspace:
        task, source = await asyncio.to_thread(
            lambda: (
                workspace.task(state["summary"].artifact),
                workspace.artifacts.get_text(state["confirmation"].point.source_sha256),
            )
        )
        evaluator = workspace.evaluator
        measured = plan.identity.kind != "simulated"
        began = time.monotonic()
        try:
            drawn = await unseen_tasks(task, plan.shapes, plan.seed, measured=measured)
            for other in drawn:
                if checks and time.monotonic() - began > SHAPES_SECONDS:
                    break
                checks.append(await _checked(evaluator, task, other, source))
                report_progress("shape", **checks[-1].model_dump(mode="json"))
        except UserError as error:
            # The winner stands all the same.
            report_progress("note", text=f"other shapes could not be looked at: {error}")
    return {"shapes": tuple(checks)}


async def _checked(evaluator: Evaluator, task: Task, other: Task, source: str) -> ShapeCheck:
    try:
        return await shape_check(evaluator, task, other, source)
    except ResultAwaited:
        return ShapeCheck(
            dimensions=changed_dimensions(task, other), outcome=Outcome.PASSED, ran=False,
            reason="compiles and can be launched; nothing ran there",
        )  # fmt: skip


async def shape_check(gates: Gates, task: Task, other: Task, source: str) -> ShapeCheck:
    """Return how a source fares on a task at other sizes."""
    passage = await gates.run(other, source)
    timing = passage.timing
    return ShapeCheck(
        dimensions=changed_dimensions(task, other),
        outcome=passage.last.outcome,
        reason=passage.last.reason,
        microseconds=timing and timing.microseconds,
        speedup=baselines_of(passage.facts).get("speedup"),
    )

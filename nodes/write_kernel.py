"""Lowering: write the chosen technique into code (the `write` node of the lowering graph).

Reads plan, summary, parent, choice and the attempts so far; writes the next attempt, or gives up.
The built-in writer rewrites the syntax tree; a failed attempt is followed by the technique's next
parameter values, never by the same source again.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ..tools.workspace import open_workspace
from .builtin.selector import explores
from .builtin.writer import rewrite
from .progress import report_progress
from .records import Attempt, KernelPoint, RunPlan, TaskSummary, TechniqueChoice


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    parent: KernelPoint
    choice: TechniqueChoice
    attempts: dict[int, Attempt]
    place: tuple[int, int, int]


async def write_kernel(state: Reads) -> dict[str, Any]:
    """Write one more attempt; an attempt without a source ends the lowering."""
    attempt = await asyncio.to_thread(_write, state)
    iteration, rollout, step = state["place"]
    report_progress(
        "attempt",
        iteration=iteration,
        rollout=rollout,
        step=step,
        technique=state["choice"].technique,
        number=attempt.number,
        parameters=attempt.parameters,
        written=attempt.source_sha256 is not None,
        reason=attempt.reason,
    )
    return {"attempts": {**state["attempts"], attempt.number: attempt}}


def _write(state: Reads) -> Attempt:
    plan, choice, attempts = state["plan"], state["choice"], state["attempts"]
    with open_workspace(plan.run_directory, plan.device, plan.gpu) as workspace:
        task = workspace.task(state["summary"].artifact)
        parent = workspace.artifacts.get_text(state["parent"].source_sha256)
        tried = [attempt.parameters for attempt in attempts.values()]
        written = rewrite(
            parent,
            task,
            choice,
            tried,
            seed=plan.seed,
            place=state["place"],
            explore=explores(state["place"][1]),
        )
        return Attempt(
            number=len(attempts),
            source_sha256=workspace.artifacts.put_text(written.source) if written.source else None,
            parameters=written.parameters,
            author="builtin",
            reason=written.note,
        )

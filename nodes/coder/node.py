"""Coder (CudaForge, section 3): writes the round's candidate.

Reads plan, summary, round, initial, current, latest and feedback; writes candidate. Without
feedback and without a kernel of the round before it writes from the PyTorch reference.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ...tools.models.records import BUILTIN
from ...tools.progress import report_progress
from ..common.workspaces import workspace_of
from ..records import Candidate, Feedback, KernelPoint, RunPlan, TaskSummary
from .builtin import Written, draw, follow


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    round: int
    initial: KernelPoint
    current: KernelPoint
    latest: Candidate | None
    feedback: Feedback | None


async def coder(state: Reads) -> dict[str, Any]:
    """Write one candidate; one without a source is a round in which nothing was written."""
    candidate = await asyncio.to_thread(_write, state)
    report_progress(
        "attempt",
        iteration=0,
        rollout=0,
        step=state["round"],
        technique=candidate.technique,
        number=0,
        parameters=candidate.parameters,
        written=candidate.source_sha256 is not None,
        reason=candidate.note,
    )
    return {"candidate": candidate}


def _write(state: Reads) -> Candidate:
    plan = state["plan"]
    with workspace_of(plan) as workspace:
        task = workspace.task(state["summary"].artifact)
        good = workspace.artifacts.get_text(state["current"].source_sha256)
        written = _rewritten(state, task, good)
        sha256 = workspace.artifacts.put_text(written.source) if written.source else None
    feedback = state["feedback"]
    return Candidate(
        technique=written.technique,
        parameters=written.parameters,
        source_sha256=sha256,
        author=BUILTIN,
        note=written.note,
        expected_log_gain=feedback.expected_log_gain if feedback else 0.0,
    )


def _rewritten(state: Reads, task: Any, good: str) -> Written:
    feedback, latest = state["feedback"], state["latest"]
    if feedback is None:
        return draw(good, task, state["plan"].seed, state["round"])
    failed = latest.parameters if latest and latest.point is None else None
    return follow(good, task, feedback, failed)

"""Confirm the winner: verify and measure it once more in fresh processes before it is announced.

Reads plan, summary, initial, best; writes confirmation. A winner that does not hold is not
announced: the initial kernel then stands as the best.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ..harness.records import Outcome, Timing
from ..tools.evaluation import Evaluator
from .progress import report_progress
from .records import Confirmation, KernelPoint, RunPlan, TaskSummary
from .workspaces import opened

AGREEMENT = 1.05
"""Largest accepted factor between the first measurement and the confirming one."""


class Reads(TypedDict):
    """What this node reads."""

    plan: RunPlan
    summary: TaskSummary
    initial: KernelPoint
    best: KernelPoint


async def confirm_winner(state: Reads) -> dict[str, Any]:
    """Measure the best kernel again and compute the announced gain from that measurement."""
    best, initial = state["best"], state["initial"]
    async with opened(state["plan"]) as workspace:
        task, source = await asyncio.to_thread(
            lambda: (
                workspace.task(state["summary"].artifact),
                workspace.artifacts.get_text(best.source_sha256),
            )
        )
        verdict, measured = await Evaluator(workspace.device, workspace.store).confirm(task, source)
    confirmation = judge(
        initial.timing,
        best,
        verdict.outcome if verdict.outcome is not Outcome.PASSED else measured.stage.outcome,
        verdict.reason or measured.stage.reason,
        measured.timing,
    )
    report_progress(
        "confirmation",
        confirmed=confirmation.confirmed,
        microseconds=confirmation.microseconds,
        gain=confirmation.gain,
        reason=confirmation.reason,
    )
    return {"confirmation": confirmation}


def judge(
    initial: Timing, best: KernelPoint, outcome: Outcome, reason: str, again: Timing | None
) -> Confirmation:
    """Compare the confirming measurement with the first one."""
    if outcome is not Outcome.PASSED or again is None:
        return _rejected(initial, f"the winner did not pass again: {outcome}: {reason}")
    factor = again.microseconds / best.microseconds
    if not 1 / AGREEMENT <= factor <= AGREEMENT:
        return _rejected(
            initial,
            f"measured {best.microseconds:.2f} us first and {again.microseconds:.2f} us again",
        )
    return Confirmation(
        confirmed=True,
        microseconds=again.microseconds,
        gain=initial.microseconds / again.microseconds,
        gain_interval=(
            initial.interval[0] / again.interval[1],
            initial.interval[1] / again.interval[0],
        ),
    )


def _rejected(initial: Timing, reason: str) -> Confirmation:
    return Confirmation(
        confirmed=False,
        microseconds=initial.microseconds,
        gain=1.0,
        gain_interval=(1.0, 1.0),
        reason=reason,
    )

"""Confirm the winner: verify and measure it once more in fresh processes before it is announced.

Reads plan, summary, initial, trajectories and soft_reviews; writes confirmation. A kernel that does
not hold, or that soft verification vetoed, is not announced: the next fastest is tried, and the
initial one stands at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, NotRequired, TypedDict

from ...harness.devices.gates import unconfirmed_because
from ...harness.judge.timing import Ratio
from ...harness.records import Provenance, Timing, outcome_in_words
from ...tools.evaluation.evaluator import Evaluator
from ...tools.progress import report_progress
from ..common.interrupts import awaited
from ..common.workspaces import opened
from ..records import Confirmation, KernelPoint, RunPlan, SoftReview, TaskSummary, Trajectory

TRIES = 3
"""Kernels that may fail to hold, or be vetoed, before the initial one is announced."""


class Reads(TypedDict):
    """What this node reads."""

    plan: RunPlan
    summary: TaskSummary
    initial: KernelPoint
    trajectories: dict[str, Trajectory]
    soft_reviews: NotRequired[dict[str, SoftReview]]


async def confirm_winner(state: Reads) -> dict[str, Any]:
    """Measure the fastest kernels again, the best first, until one holds; announce that one."""
    initial = state["initial"]
    vetoed = {k: r for k, r in state.get("soft_reviews", {}).items() if r.vetoed}
    notes = veto_notes(state["trajectories"], vetoed)
    confirmation = unconfirmed(initial, notes)
    for point in contenders(initial, state["trajectories"], vetoed):
        again, ratio, reason = await _again(state, point)
        if again is not None and not reason:
            confirmation = confirmed(initial.timing, point, again, notes, ratio)
            break
        notes.append(f"{point.microseconds:.2f} us did not hold: {reason}")
        confirmation = unconfirmed(initial, notes)
    report_progress(
        "confirmation",
        confirmed=confirmation.confirmed,
        microseconds=confirmation.microseconds,
        gain=confirmation.gain,
        reason=confirmation.reason,
    )
    return {"confirmation": confirmation}


def contenders(
    initial: KernelPoint, trajectories: dict[str, Trajectory], vetoed: Collection[str] = ()
) -> list[KernelPoint]:
    """Return the kernels to confirm, fastest first: at most TRIES, and the initial one last.

    Those whose evaluation key is in `vetoed` are left out: the next best of the same trajectory,
    which passed every check, then stands in for them.
    """
    points = {
        point.source_sha256: point
        for trajectory in trajectories.values()
        for point in (trajectory.best, *trajectory.passed)
        if point.microseconds < initial.microseconds and point.evaluation_key not in vetoed
    }
    if len(vetoed) >= TRIES:  # Each costs a review.
        return [initial]
    ranked = sorted(points.values(), key=lambda p: (p.microseconds, len(p.path), p.source_sha256))
    return [*ranked[:TRIES], initial]


def veto_notes(
    trajectories: dict[str, Trajectory], vetoed: Mapping[str, SoftReview]
) -> list[str]:
    """Return a line for each vetoed kernel: its time, who vetoed it and why."""
    times = {
        point.evaluation_key: point.microseconds
        for item in trajectories.values()
        for point in (item.best, *item.passed)
    }
    return [
        f"{times[key]:.2f} us vetoed by {review.author}: {'; '.join(review.reasons)}"
        for key, review in sorted(vetoed.items())
        if key in times
    ]


def confirmed(
    initial: Timing,
    point: KernelPoint,
    again: Timing,
    notes: list[str],
    ratio: Ratio | None = None,
) -> Confirmation:
    """Return the confirmation of a kernel that held.

    The gain is that of the rounds in which the initial kernel and this one were timed side by side,
    where the device can do that (`ratio`); else of the second measurement. A simulated time is that
    of the first: the second, of other blocks, is drawn from a secret, and the same run would
    announce another number each time.
    """
    again = point.timing if again.provenance is Provenance.SIMULATED else again
    gain = initial.microseconds / again.microseconds
    interval = initial.interval[0] / again.interval[1], initial.interval[1] / again.interval[0]
    if ratio is not None:
        gain, interval = ratio.ratio, ratio.interval
    return Confirmation(
        confirmed=True,
        point=point,
        microseconds=again.microseconds,
        gain=gain,
        gain_interval=interval,
        reason="; ".join(notes),
    )


def unconfirmed(initial: KernelPoint, notes: list[str]) -> Confirmation:
    """Return what is announced when no kernel held."""
    return Confirmation(
        confirmed=False,
        point=initial,
        microseconds=initial.microseconds,
        gain=1.0,
        gain_interval=(1.0, 1.0),
        reason="; ".join(notes),
    )


async def _again(state: Reads, point: KernelPoint) -> tuple[Timing | None, Ratio | None, str]:
    """Verify and measure a kernel once more, and beside the initial one.

    Returns its timing, the initial kernel's time over its own, and why either is missing.
    """
    initial = state["initial"]
    async with opened(state["plan"]) as workspace:
        task, source, first = await asyncio.to_thread(
            lambda: (
                workspace.task(state["summary"].artifact),
                workspace.artifacts.get_text(point.source_sha256),
                workspace.artifacts.get_text(initial.source_sha256),
            )
        )
        evaluator = Evaluator(workspace.device, workspace.store)
        again = await awaited(
            state["plan"], workspace, lambda: evaluator.confirm(task, source)
        )
        reason = unconfirmed_because(point.timing, again)
        if reason or point.source_sha256 == initial.source_sha256:
            return again.timing, None, reason
        compared = await evaluator.compare(task, first, source)
    if compared is None:
        return again.timing, None, ""
    if compared.ratio is None:
        words = outcome_in_words(compared.stage.outcome, compared.stage.reason)
        return None, None, f"timed beside the initial kernel, one of the two failed: {words}"
    return again.timing, compared.ratio, ""

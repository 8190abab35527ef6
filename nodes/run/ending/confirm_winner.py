"""Confirm the winner: verify and measure it once more in fresh processes before it is announced.

Reads plan, summary, initial and soft_reviews (what passed comes from the replay buffer); writes
confirmation. A kernel that does not hold, or that soft verification vetoed, is not announced:
another is tried (contenders.py), and the initial one stands at the end. One with the same fault as
a vetoed one (it fails on the input that showed it, or holds the line that was objected to) is
passed over without a review or a measurement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from ....harness.devices.gates import unconfirmed_because
from ....harness.judge.timing import Ratio
from ....harness.records.outcomes import outcome_in_words
from ....harness.records.timings import SIMULATED_RESOLUTION, Provenance, Timing
from ....memory.records.evidence import Step
from ....tools.evaluation.evaluator import Evaluator
from ....tools.progress import report_progress
from ....tools.wording.listing import line_of
from ...common.history.lesson import overturn
from ...common.history.points import kernel_point
from ...common.history.steps import Way, ways_through
from ...common.stopping.interrupts import awaited
from ...common.workspaces import opened, workspace_of
from ...records.kernels import KernelPoint
from ...records.plan import RunPlan
from ...records.result import Confirmation
from ...records.reviews import SoftReview
from ...records.task import TaskSummary
from .contenders import Contenders

TRIES = 4
"""Kernels that may fail to hold before the initial one is announced."""
MOST_VETOED = 3
"""Kernels that may be vetoed before it is: each costs a review."""


class Reads(TypedDict):
    """What this node reads."""

    plan: RunPlan
    summary: TaskSummary
    initial: KernelPoint
    soft_reviews: NotRequired[dict[str, SoftReview]]


async def confirm_winner(state: Reads) -> dict[str, Any]:
    """Measure the fastest kernels again until one holds, and announce that one."""
    initial = state["initial"]
    vetoed = {k: r for k, r in state.get("soft_reviews", {}).items() if r.vetoed}
    steps = await asyncio.to_thread(_steps, state["plan"])
    notes = veto_notes(steps, vetoed)
    left, tries = Contenders(fastest_first(initial, steps, vetoed)), 0
    held: tuple[KernelPoint, Timing, Ratio | None] | None = None
    while tries < TRIES and (way := left.next()) is not None:
        point = await asyncio.to_thread(_point, state, way)
        if fault := await _known_fault(state, point, vetoed):
            notes.append(f"{point.microseconds:.2f} us does not stand: {fault}")
            continue
        again, ratio, reason = await _again(state, point)
        if again is not None and not reason:
            left.holds(way)
            held = point, again, ratio
            continue
        tries += 1
        notes.append(f"{point.microseconds:.2f} us did not hold: {reason}")
        if again is None:
            left.is_wrong(way, reason)
        else:  # It is right, and slower.
            await asyncio.to_thread(_refute, state["plan"], way, reason)
    for way, reason in left.blamed():
        await asyncio.to_thread(_refute, state["plan"], way, reason)
    if held is None:
        again, ratio, reason = await _again(state, initial)
        if again is not None and not reason:
            held = initial, again, ratio
        else:
            notes.append(f"{initial.microseconds:.2f} us did not hold: {reason}")
    if held is None:
        confirmation = unconfirmed(initial, notes)
    else:
        confirmation = confirmed(initial, *held[:2], notes, held[2])
    report_progress(
        "confirmation",
        confirmed=confirmation.confirmed,
        microseconds=confirmation.microseconds,
        gain=confirmation.gain,
        reason=confirmation.reason,
    )
    return {"confirmation": confirmation}


def _refute(plan: RunPlan, way: Way, reason: str) -> None:
    """Let the step that made a kernel which did not hold count as a failure."""
    with workspace_of(plan) as workspace:
        overturn(workspace, way, str(way[-1].child_sha256), "unconfirmed", reason)


def _steps(plan: RunPlan) -> list[Step]:
    with workspace_of(plan) as workspace:
        return workspace.store.replay.steps()


def fastest_first(
    initial: KernelPoint, steps: Sequence[Step], vetoed: Collection[str] = ()
) -> list[Way]:
    """Return the ways to the kernels that are faster than the initial one, the fastest first.

    Those whose evaluation key is in `vetoed` are left out; all, where so many were vetoed.
    """
    if len(vetoed) >= MOST_VETOED:
        return []
    faster = [
        (step.microseconds_after, len(way), source, way)
        for source, way in ways_through(steps).items()
        for step in way[-1:]
        if step.microseconds_after is not None
        and step.microseconds_after < initial.microseconds
        and step.evaluation_key not in vetoed
    ]
    return [way for *_, way in sorted(faster, key=lambda each: each[:3])]


async def _known_fault(
    state: Reads, point: KernelPoint, vetoed: Mapping[str, SoftReview]
) -> str:
    """Return which fault of a vetoed kernel another has too; empty where it has none."""
    async with opened(state["plan"]) as workspace:
        task, source = await asyncio.to_thread(
            lambda: (
                workspace.task(state["summary"].artifact),
                workspace.artifacts.get_text(point.source_sha256),
            )
        )
        failed = await workspace.evaluator.fails_a_claim(task, source)
    if failed is not None:
        return outcome_in_words(failed.outcome, failed.reason)
    for review in vetoed.values():
        for objected in review.objections:
            if objected.confirmed is None and (at := line_of(source, objected.quote)) is not None:
                return f"line {at} is that of a kernel vetoed by {review.author}: {objected.said}"
    return ""


def _point(state: Reads, way: Way) -> KernelPoint:
    last = way[-1]
    with workspace_of(state["plan"]) as workspace:
        evaluation = workspace.evaluation(str(last.evaluation_key))
    return kernel_point(evaluation, last.author, depth=len(way), technique=last.technique)


def veto_notes(steps: Sequence[Step], vetoed: Mapping[str, SoftReview]) -> list[str]:
    """Return a line for each vetoed kernel: its time, who vetoed it and why."""
    times = {step.evaluation_key: step.microseconds_after for step in steps}
    return [
        f"{times[key]:.2f} us vetoed by {review.author}: {'; '.join(review.reasons)}"
        for key, review in sorted(vetoed.items())
        if key in times
    ]


def gain_of(
    initial: KernelPoint | Timing, held: KernelPoint | Timing, ratio: Ratio | None
) -> tuple[float, tuple[float, float]]:
    """Return how many times as fast as the initial kernel another is, and the interval of that.

    It is that of the rounds in which both were timed, where there are any (`ratio`); of simulated
    times it is no narrower than the time model can tell them apart.
    """
    if ratio is not None:
        return ratio.ratio, ratio.interval
    wider = 1.0 + (SIMULATED_RESOLUTION if held.provenance is Provenance.SIMULATED else 0.0)
    lowest = initial.interval[0] / held.interval[1] / wider
    highest = initial.interval[1] / held.interval[0] * wider
    return initial.microseconds / held.microseconds, (lowest, highest)


def confirmed(
    initial: KernelPoint,
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
    held = point if again.provenance is Provenance.SIMULATED else again
    gain, interval = gain_of(initial, held, ratio)
    return Confirmation(
        confirmed=True,
        point=point,
        microseconds=held.microseconds,
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
        task, source, first, measured = await asyncio.to_thread(
            lambda: (
                workspace.task(state["summary"].artifact),
                workspace.artifacts.get_text(point.source_sha256),
                workspace.artifacts.get_text(initial.source_sha256),
                workspace.evaluation(point.evaluation_key).timing,
            )
        )
        assert measured is not None
        device = workspace.device.confirming_for(state["plan"].confirm_seconds)
        evaluator = Evaluator(device, workspace.store)
        again = await awaited(
            state["plan"], workspace, lambda: evaluator.confirm(task, source)
        )
        reason = unconfirmed_because(measured, again)
        if reason or point.source_sha256 == initial.source_sha256:
            return again.timing, None, reason
        compared = await evaluator.compare(task, first, source)
    if compared is None:
        return again.timing, None, ""
    if compared.ratio is None:
        words = outcome_in_words(compared.stage.outcome, compared.stage.reason)
        return None, None, f"timed beside the initial kernel, one of the two failed: {words}"
    return again.timing, compared.ratio, ""

"""Measures the winners of an earlier bench or run again, and says which claims hold.

From what is stored alone: the reference, the initial kernel and the winner. All of it is done as a
run does it with its winner: verified on the task's cases and on secret ones, timed, timed beside
the initial kernel where the device can do that, and run at the unseen sizes at which it held.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from ..harness.devices.gates import Gates, unconfirmed_because
from ..harness.devices.protocol import Device
from ..harness.devices.registry import device_choice, open_device
from ..harness.errors import UserError
from ..harness.files import read_source
from ..harness.metrics import VALID
from ..harness.process.scratch import scratch_folder
from ..harness.records.evaluations import DeviceIdentity
from ..harness.records.outcomes import outcome_in_words
from ..harness.records.record import Record
from ..harness.records.tasks import Task
from ..harness.records.timings import Provenance, Timing
from ..harness.task.loading import load_task
from ..harness.task.unseen import changed_dimensions, unseen_tasks
from ..memory.run.artifacts import ArtifactStore
from ..memory.run.directory import ARTIFACTS
from ..memory.run.journal import latest
from ..memory.run.run_store import RunStore
from ..nodes.records.plan import RunPlan
from ..nodes.records.result import RunResult, ShapeCheck
from ..nodes.run.beginning.begin import stored_plan
from ..nodes.run.ending.circumstances import baselines_of
from ..nodes.run.ending.confirm_winner import gain_of
from ..nodes.run.ending.report import stored_result
from ..nodes.run.ending.unseen_shapes import shape_check
from .directory import is_suite, read_outcomes, read_suite

Verdict = Literal["holds", "slower", "faster", "fails", "not_compared", "no_claim"]
"""holds: the intervals of the gains overlap; slower, faster: they do not; fails: the winner does
not pass any more; not_compared: other numbers than the claim's, another GPU or device; no_claim:
the run announced no kernel that held, or is not over."""


Subject = tuple[Task, str, str]
"""A task, its initial kernel and its winner."""


class Figures(Record):
    """What is said of a winner: claimed, or measured now."""

    gpu: str
    provenance: Provenance
    initial_us: float
    best_us: float
    gain: float
    """Time of the initial kernel over the winner's."""
    gain_interval: tuple[float, float]
    baselines: dict[str, float]
    """PyTorch's times and the speedup over the faster of them, where it was measured."""


class Again(Record):
    """One claim, and what came of measuring it again."""

    run: str
    """Directory of the run, from what was asked for."""
    policy: str
    task: str = ""
    seed: int = 0
    verdict: Verdict
    reason: str = ""
    """Why it is no other verdict, where that is to be said."""
    claimed: Figures | None = None
    now: Figures | None = None
    shapes: tuple[ShapeCheck, ...] = ()
    """The winner at the unseen sizes that it is said to hold at, now."""


class Rerun(Record):
    """rerun.json: all claims of a bench or run, measured again."""

    directory: str
    device: DeviceIdentity
    """What measured now."""
    counts: dict[str, int]
    """Claims by verdict."""
    claims: tuple[Again, ...]


async def rerun(
    directory: Path,
    device: str = "",
    gpu: str = "",
    jobs: int | None = None,
    told: Callable[[Again], None] = lambda again: None,
) -> Rerun:
    """Measure the winners below a directory again.

    Args:
        directory: of a bench or of a run.
        device: what measures; by default the claims' own kind, where it is here.
        gpu: to simulate; by default the claims'.
        jobs: winners at a time; by default one, and where they are simulated one a core.
        told: hears of each as soon as it is known.

    Raises:
        UserError: nothing was run in the directory, or the device cannot be used.
    """
    runs, without, before = await asyncio.to_thread(_runs, directory)
    if not runs and not without:
        raise UserError(f"{directory} holds no run that is over: there is nothing to run again")
    chosen, _ = device_choice(device or (before.kind if before.kind == "simulated" else "auto"))
    simulated = chosen == "simulated"
    opened = open_device(chosen, gpu or (before.gpu if simulated else ""))
    room = asyncio.Semaphore(jobs or (len(os.sched_getaffinity(0)) if simulated else 1))

    async def one(run: Path, policy: str) -> Again:
        async with room:
            again = await _again(directory, run, policy, opened)
        told(again)
        return again

    try:
        measured = await asyncio.gather(*(one(run, policy) for run, policy in runs))
    finally:
        opened.close()
    for again in without:
        told(again)
    claims = (*measured, *without)
    return Rerun(
        directory=str(directory),
        device=opened.identity,
        counts=dict(sorted(Counter(each.verdict for each in claims).items())),
        claims=claims,
    )


def _runs(directory: Path) -> tuple[list[tuple[Path, str]], list[Again], DeviceIdentity]:
    """Return the runs that are over, each with its policy, those that failed before they had a
    directory, and what they were measured on."""
    if not is_suite(directory):
        plan = stored_plan(directory)
        return [(directory, plan.policy)], [], plan.identity
    lock = read_suite(directory)
    found = read_outcomes(directory, lock)
    runs = [(directory / ended.run, run.variant) for run, ended in found if ended.run]
    without = [
        Again(
            run="", policy=run.variant, task=run.task, seed=run.seed, verdict="no_claim",
            reason=f"the run came to no result: {ended.reason}",
        )
        for run, ended in found if not ended.run
    ]  # fmt: skip
    return runs, without, lock.device


async def _again(directory: Path, run: Path, policy: str, device: Device) -> Again:
    named: dict[str, Any] = {"run": str(run.relative_to(directory)), "policy": policy}
    try:
        plan = await asyncio.to_thread(stored_plan, run)
        named |= {"task": Path(plan.task).stem, "seed": plan.seed}
        result = await asyncio.to_thread(stored_result, run)
        if result is None or result.outcome not in VALID:
            reason = "the run came to no result" if result is None else f"it is {result.outcome}"
            return Again(**named, verdict="no_claim", reason=reason)
        claimed = claim_of(result)
        with scratch_folder("rerun") as scratch:
            subject = await _subject(run, plan, scratch)
            gates = Gates(device.confirming_for(plan.confirm_seconds))
            now, reason = await _measured(subject, gates)
            if now is None:
                return Again(**named, verdict="fails", reason=reason, claimed=claimed)
            shapes = await _elsewhere(subject, plan, result, gates)
    except UserError as error:
        return Again(**named, verdict="fails", reason=str(error))
    verdict, reason = compared(claimed, now)
    for each in shapes:
        if not each.holds:
            sizes = ", ".join(f"{name} = {value}" for name, value in each.dimensions.items())
            verdict, reason = "fails", f"at {sizes}: {outcome_in_words(each.outcome, each.reason)}"
    return Again(
        **named, verdict=verdict, reason=reason, claimed=claimed, now=now, shapes=shapes
    )


def claim_of(result: RunResult) -> Figures:
    """Return what a run says of its winner."""
    return Figures(
        gpu=result.gpu,
        provenance=result.provenance,
        initial_us=result.initial_us,
        best_us=result.best_us,
        gain=result.gain,
        gain_interval=result.gain_ci,
        baselines=result.baselines,
    )


def compared(claimed: Figures, now: Figures) -> tuple[Verdict, str]:
    """Return whether a claim holds, and what is to be said of that."""
    if (claimed.provenance, claimed.gpu) != (now.provenance, now.gpu):
        return "not_compared", (
            f"claimed of {claimed.gpu} ({claimed.provenance}), and this is {now.gpu} "
            f"({now.provenance}); it passes here"
        )
    pairs = {"the initial kernel": (claimed.gain_interval, now.gain_interval)}
    if all("speedup_low" in each.baselines for each in (claimed, now)):
        pairs["PyTorch"] = (_speedup(claimed), _speedup(now))
    for against, (before, after) in pairs.items():
        if after[1] < before[0]:
            return "slower", _apart(against, before, after)
        if after[0] > before[1]:
            return "faster", _apart(against, before, after)
    return "holds", ""


def _speedup(figures: Figures) -> tuple[float, float]:
    return figures.baselines["speedup_low"], figures.baselines["speedup_high"]


def _apart(against: str, before: Sequence[float], after: Sequence[float]) -> str:
    return (
        f"against {against}: {after[0]:.3f} to {after[1]:.3f}, claimed were {before[0]:.3f} to "
        f"{before[1]:.3f}"
    )


async def _measured(subject: Subject, gates: Gates) -> tuple[Figures | None, str]:
    """Return what a winner comes to now, or why it does not pass."""
    task, initial, winner = subject
    first = await gates.run(task, initial)
    if first.timing is None:
        said = outcome_in_words(first.last.outcome, first.last.reason)
        return None, f"the initial kernel does not pass here: {said}"
    passage = first if initial == winner else await gates.run(task, winner)
    if passage.timing is None:
        return None, outcome_in_words(passage.last.outcome, passage.last.reason)
    again = await gates.confirm(task, winner)
    if reason := unconfirmed_because(passage.timing, again):
        return None, reason
    beside = None if initial == winner else await gates.compare(task, initial, winner)
    if beside is not None and beside.ratio is None:
        return None, outcome_in_words(beside.stage.outcome, beside.stage.reason)
    held = _held(passage.timing, again.timing)
    gain, interval = gain_of(first.timing, held, beside.ratio if beside else None)
    return Figures(
        gpu=gates.device.identity.gpu,
        provenance=held.provenance,
        initial_us=first.timing.microseconds,
        best_us=held.microseconds,
        gain=gain,
        gain_interval=interval,
        baselines=baselines_of(passage.facts | again.facts),
    ), ""


def _held(first: Timing, again: Timing | None) -> Timing:
    """Return the time that counts: see `confirm_winner.confirmed`."""
    assert again is not None
    return first if again.provenance is Provenance.SIMULATED else again


async def _elsewhere(
    subject: Subject, plan: RunPlan, result: RunResult, gates: Gates
) -> tuple[ShapeCheck, ...]:
    """Return what a winner comes to at the unseen sizes at which it is said to hold.

    They are drawn as they were for the claim. Raises UserError where that cannot be done.
    """
    held = [each.dimensions for each in result.shapes if each.holds]
    if not held:
        return ()
    task, _, winner = subject
    measured = plan.identity.kind != "simulated"
    drawn = await unseen_tasks(task, plan.shapes, plan.seed, measured=measured)
    return tuple([
        await shape_check(gates, task, other, winner)
        for other in drawn if changed_dimensions(task, other) in held
    ])  # fmt: skip


async def _subject(path: Path, plan: RunPlan, scratch: Path) -> Subject:
    """Return the task, read anew from its stored text, the initial kernel and the winner.

    Raises:
        UserError: one of them is not stored.
    """
    with RunStore(path / "run.sqlite", copied=True) as store:
        state = latest(store.journal.entries())
    artifacts = ArtifactStore(path / ARTIFACTS)
    summary, initial = state.get("summary"), state.get("initial")
    if not (summary and initial):
        raise UserError(f"{path} does not hold its task and initial kernel; nothing can be done")
    stored = Task.model_validate_json(artifacts.get_text(summary["artifact"]))
    reference = scratch / f"{stored.name}.py"
    reference.write_text(stored.source, encoding="utf-8")
    task = await load_task(
        reference, plan.dimensions, plan.reading, seconds=plan.reference_seconds
    )
    return task, artifacts.get_text(initial["source_sha256"]), read_source(path / "best.cu")


"""Measures the winners of an earlier bench or run again, and says which claims hold.

From what is stored, or stands in a report: the reference, the initial kernel and the winner. All of
it is done as a run does it with its winner: verified on the task's cases and on secret ones, timed,
timed beside the initial kernel where the device can do that, and run at the unseen sizes at which
it held.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ..harness.devices.gates import Gates, unconfirmed_because
from ..harness.devices.protocol import Device
from ..harness.devices.registry import device_choice, open_device
from ..harness.errors import UserError
from ..harness.process.scratch import scratch_folder
from ..harness.records.evaluations import DeviceIdentity
from ..harness.records.outcomes import outcome_in_words
from ..harness.records.record import Record
from ..harness.records.tasks import Task
from ..harness.records.timings import Provenance, Timing
from ..harness.task.loading import load_task
from ..harness.task.unseen import changed_dimensions, unseen_tasks
from ..nodes.records.result import ShapeCheck
from ..nodes.run.ending.circumstances import baselines_of
from ..nodes.run.ending.confirm_winner import gain_of
from ..nodes.run.ending.unseen_shapes import shape_check
from .claims import Claim, Figures, Texts, claims_of

Verdict = Literal["holds", "slower", "faster", "fails", "not_compared", "no_claim"]
"""holds: the intervals of the gains overlap; slower, faster: they do not; fails: the winner does
not pass any more; not_compared: other numbers than the claim's, another GPU or device; no_claim:
the run announced no kernel that held, or is not over."""


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
    place: Path,
    device: str = "",
    gpu: str = "",
    jobs: int | None = None,
    told: Callable[[Again], None] = lambda again: None,
) -> Rerun:
    """Measure the winners of a bench or run again.

    Args:
        place: its directory, or its report in HTML.
        device: what measures; by default the claims' own kind, where it is here.
        gpu: to simulate; by default the claims'.
        jobs: winners at a time; by default one, and where they are simulated one a core.
        told: hears of each as soon as it is known.

    Raises:
        UserError: nothing was run there, or the device cannot be used.
    """
    known = await asyncio.to_thread(claims_of, place)
    before = known.device
    chosen, _ = device_choice(device or (before.kind if before.kind == "simulated" else "auto"))
    if chosen.startswith("deferred"):
        raise UserError("--device deferred measures nothing here: run it where the GPU is")
    simulated = chosen == "simulated"
    opened = open_device(chosen, gpu or (before.gpu if simulated else ""))
    room = asyncio.Semaphore(jobs or (len(os.sched_getaffinity(0)) if simulated else 1))

    async def one(claim: Claim) -> Again:
        async with room:
            again = await _again(claim, opened)
        told(again)
        return again

    try:
        claims = await asyncio.gather(*map(one, known.claims))
    finally:
        opened.close()
    return Rerun(
        directory=str(place),
        device=opened.identity,
        counts=dict(sorted(Counter(each.verdict for each in claims).items())),
        claims=tuple(claims),
    )


async def _again(claim: Claim, device: Device) -> Again:
    named: dict[str, Any] = claim.model_dump(include={"run", "policy", "task", "seed"})
    claimed, texts = claim.figures, claim.texts
    if claimed is None or texts is None:
        verdict: Verdict = "fails" if claim.damaged else "no_claim"
        return Again(**named, verdict=verdict, reason=claim.reason)
    folder = Path("/nowhere")
    try:
        with scratch_folder("rerun") as folder:
            task = await _task(texts, folder)
            gates = Gates(device.confirming_for(texts.confirm_seconds))
            now, reason = await _measured(task, texts, gates)
            if now is None:
                return Again(**named, verdict="fails", reason=reason, claimed=claimed)
            measured = claimed.provenance is not Provenance.SIMULATED
            shapes = await _elsewhere(task, texts, claim.seed, measured, gates)
            looked_at = [each.dimensions for each in shapes]
            unseen = [each for each in texts.held if each not in looked_at]
    except UserError as error:
        # The folder is gone when that is read: the reference is named by itself.
        said = str(error).replace(f"{folder}{os.sep}", "")
        return Again(**named, verdict="fails", reason=said)
    verdict, reason = compared(claimed, now)
    if unseen and not reason:
        told = "; ".join(map(_sizes, unseen))
        reason = f"said to hold too at sizes that are not drawn again: {told}"
    for each in shapes:
        if not each.holds:
            said = outcome_in_words(each.outcome, each.reason)
            verdict, reason = "fails", f"at {_sizes(each.dimensions)}: {said}"
    return Again(
        **named, verdict=verdict, reason=reason, claimed=claimed, now=now, shapes=shapes
    )


def compared(claimed: Figures, now: Figures) -> tuple[Verdict, str]:
    """Return whether a claim holds, and what is to be said of that."""
    if (claimed.provenance, claimed.gpu) != (now.provenance, now.gpu):
        return "not_compared", (
            f"claimed of {claimed.gpu} ({claimed.provenance}), and this is {now.gpu} "
            f"({now.provenance}); it passes here"
        )
    pairs = {"the initial kernel": (claimed.gain_interval, now.gain_interval)}
    ends = {"speedup_low", "speedup_high"}
    if all(ends <= each.baselines.keys() for each in (claimed, now)):
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


async def _measured(task: Task, texts: Texts, gates: Gates) -> tuple[Figures | None, str]:
    """Return what a winner comes to now, or why it does not pass."""
    initial, winner = texts.initial, texts.winner
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
    task: Task, texts: Texts, seed: int, measured: bool, gates: Gates
) -> tuple[ShapeCheck, ...]:
    """Return what a winner comes to at the unseen sizes at which it is said to hold.

    They are drawn as they were for the claim. Raises UserError where that cannot be done.
    """
    if not texts.held:
        return ()
    drawn = await unseen_tasks(task, texts.shapes, seed, measured=measured)
    return tuple([
        await shape_check(gates, task, other, texts.winner)
        for other in drawn if changed_dimensions(task, other) in texts.held
    ])  # fmt: skip


def _sizes(dimensions: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in dimensions.items())


async def _task(texts: Texts, scratch: Path) -> Task:
    """Return the task, read anew from its text. Raises UserError."""
    # Of a page anybody may have written the name.
    reference = scratch / f"{re.sub(r'[^A-Za-z0-9_-]', '_', texts.name)[:100] or 'task'}.py"
    reference.write_text(texts.reference, encoding="utf-8")
    return await load_task(
        reference, texts.dimensions, texts.reading, seconds=texts.reference_seconds
    )

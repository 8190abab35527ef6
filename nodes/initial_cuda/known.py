"""Kernels that earlier runs found: tried here as any candidate, or shown to who writes one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ...harness.records.evaluations import Evaluation
from ...harness.records.outcomes import Outcome, outcome_in_words
from ...harness.records.tasks import Task
from ...memory.knowledge.kernels import Found, TaskSeen, renamed
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.history.points import kernel_point
from ..common.policies import reads_kernels
from ..common.stopping.interrupts import awaited
from ..common.workspaces import opened
from ..records.kernels import KnownStart
from ..records.plan import RunPlan
from ..records.task import TaskSummary

MOST_TRIED = 3
"""Known kernels that are evaluated before the search begins without one."""
MOST_SHOWN = 2


class Example(NamedTuple):
    """A known kernel as a model is shown it."""

    about: str
    """Of which task it is, and what is known of it."""
    source: str


class Remembered(NamedTuple):
    """What the knowledge base has for a task."""

    start: KnownStart
    source: str = ""
    """Of the kernel that holds here; empty where none does."""
    examples: tuple[Example, ...] = ()
    """Kernels of like tasks, and of this one where they do not hold."""


async def remembered(plan: RunPlan, summary: TaskSummary) -> Remembered:
    """Return the known kernel that the search begins with, and others worth being shown.

    Those of this very task, or of its operators at other sizes, are evaluated, the most promising
    first, until one passes; why the others did not is told.
    """
    if not reads_kernels(plan):
        return Remembered(KnownStart())
    async with opened(plan) as workspace:
        task, candidates = await asyncio.to_thread(_candidates, workspace, summary)
        if not candidates:
            return Remembered(KnownStart())
        ready = [each for each in candidates if each[0].nearness != "related"]
        passed_over: list[str] = []
        for found, source in ready[: _affordable(plan)]:
            evaluation = await awaited(
                plan, workspace,
                partial(workspace.evaluator.evaluate, task, source, measured_anew=True),
            )  # fmt: skip
            if evaluation.outcome is Outcome.PASSED:
                start = _begins(found, evaluation, passed_over)
                report_progress(
                    "known_kernel", told=start.told, techniques=start.techniques,
                    microseconds=evaluation.timing.microseconds if evaluation.timing else None,
                    passed_over=start.passed_over,
                )  # fmt: skip
                return Remembered(start, source)
            words = outcome_in_words(evaluation.outcome, evaluation.reason)
            passed_over.append(f"the kernel {_named(found)} does not hold here: {words}")
            report_progress("note", text=passed_over[-1])
    shown = tuple(Example(_about(found), source) for found, source in candidates[:MOST_SHOWN])
    return Remembered(KnownStart(passed_over=tuple(passed_over)), examples=shown)


def _candidates(
    workspace: Workspace, summary: TaskSummary
) -> tuple[Task, Sequence[tuple[Found, str]]]:
    """Return the task, and the known kernels whose text is kept, under the task's own names."""
    task = workspace.task(summary.artifact)
    seen = TaskSeen.of(task)
    identity, knowledge = workspace.device.identity, workspace.knowledge
    found = knowledge.kernels_bearing_on(seen, identity.kind, identity.gpu)
    kept = []
    for each in found:
        text = knowledge.source(each.kernel.source_sha256)
        if text is not None:
            kept.append((each, renamed(text, each.task.full, task.full)))
        if len(kept) == MOST_TRIED + MOST_SHOWN:
            break
    return task, kept


def _affordable(plan: RunPlan) -> int:
    """Return how many known kernels may be evaluated beside the first: caps hold for them too."""
    cap = plan.budgets.evaluations
    return MOST_TRIED if cap is None else max(0, min(MOST_TRIED, cap - 1))


def _begins(found: Found, evaluation: Evaluation, passed_over: Sequence[str]) -> KnownStart:
    kernel = found.kernel
    last = kernel.techniques[-1] if kernel.techniques else ""
    return KnownStart(
        point=kernel_point(evaluation, kernel.author, depth=1, technique=last),
        run=kernel.run,
        task=found.task.name,
        resized=found.nearness == "resized",
        techniques=kernel.techniques,
        gain_then=kernel.gain,
        passed_over=tuple(passed_over),
    )


def _named(found: Found) -> str:
    where = f" for {found.task.name} at other sizes" if found.nearness == "resized" else ""
    return f"of run {found.kernel.run}{where}"


def _about(found: Found) -> str:
    """Return what a model should know of a known kernel."""
    kernel, task = found.kernel, found.task
    shapes = ", ".join(f"{each.name} {list(each.shape)}" for each in task.full.tensors)
    like = {
        "same": "this very task",
        "resized": f"the same operators at other sizes ({shapes})",
        "related": f"a task with operators in common ({', '.join(task.operators)}; {shapes})",
    }[found.nearness]
    whose = "simulated" if kernel.device_kind == "simulated" else "measured"
    gain = "" if kernel.gain is None else f", {kernel.gain:.3g}x its plain first kernel"
    share = kernel.bound_share
    bound = "" if share is None else f", {share:.0%} of the speed of light"
    how = f"; found by {', then '.join(kernel.techniques)}" if kernel.techniques else ""
    return (
        f"Of {like}, on {kernel.gpu} ({whose}): {kernel.microseconds:.2f} us{gain}{bound}{how}."
    )

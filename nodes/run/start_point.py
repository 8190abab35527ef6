"""Start point: where a rollout begins, the first at the best so far, the others anywhere good.

Reads plan, summary, place, best and start_point; what was reached comes from the replay buffer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TypedDict

import numpy as np

from ...memory.records import Step
from ..common.points import kernel_point
from ..common.randomness import generator
from ..common.steps import Way, ways_through
from ..common.workspaces import workspace_of
from ..records import KernelPoint, RunPlan, TaskSummary


class Reads(TypedDict, total=False):
    """What this step reads."""

    plan: RunPlan
    summary: TaskSummary
    iteration: int
    rollout: int
    best: KernelPoint
    start_point: KernelPoint


async def start_point(state: Reads) -> KernelPoint:
    """Return the kernel that a rollout begins with: the one it was given, if any.

    All but the first draw among all trajectories' bests and the initial kernel, faster ones more
    often, so that the search does not hang on one path.
    """
    if "start_point" in state:
        return state["start_point"]
    if state["rollout"] == 0 or state["iteration"] == 0:
        return state["best"]
    return await asyncio.to_thread(_drawn, state)


def _drawn(state: Reads) -> KernelPoint:
    plan, iteration = state["plan"], state["iteration"]
    with workspace_of(plan) as workspace:
        steps = [step for step in workspace.store.replay.steps() if step.iteration < iteration]
        if not steps:
            return state["best"]
        ways = ways_through(steps)
        times = bests(steps, ways)
        ranked = sorted(times)
        speed = np.array([1.0 / times[source] for source in ranked])
        stream = generator(plan.seed, "start", iteration, state["rollout"])
        drawn = ranked[int(stream.choice(len(ranked), p=speed / speed.sum()))]
        task = workspace.task(state["summary"].artifact)
        source = workspace.artifacts.get_text(drawn)
        evaluation = workspace.evaluation(
            workspace.evaluator.key(task, source)
        )
    way = ways[drawn]
    last = way[-1] if way else None
    return kernel_point(
        evaluation,
        last.author if last else "",
        depth=len(way),
        technique=last.technique if last else "",
    )


def bests(steps: Sequence[Step], ways: Mapping[str, Way]) -> dict[str, float]:
    """Return source and time of the initial kernel and of each trajectory's best.

    Args:
        steps: the run's, from the first on, ordered by iteration, rollout and step.
        ways: those through the same steps.
    """
    found = {steps[0].parent_sha256: steps[0].microseconds_before}
    for _, group in groupby(steps, key=lambda step: (step.iteration, step.rollout)):
        own = list(group)
        times = {own[0].parent_sha256: own[0].microseconds_before} | {
            step.child_sha256: step.microseconds_after
            for step in own
            if step.child_sha256 and step.microseconds_after is not None
        }
        best = min(times, key=lambda source: (times[source], len(ways[source]), source))
        found[best] = times[best]
    return found

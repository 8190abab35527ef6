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
from ...tools.workspace import Workspace
from ..common.points import kernel_point
from ..common.randomness import generator
from ..common.steps import Way, ways_through
from ..common.workspaces import opened, workspace_of
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
    often, so that the search does not hang on one path. A kernel that an input which a reviewer
    found since shows wrong is no start: the fastest that stands takes its place.
    """
    if "start_point" in state:
        return state["start_point"]
    if state["rollout"] == 0 or state["iteration"] == 0:
        return await _standing(state, state["best"])
    return await _standing(state, await asyncio.to_thread(_drawn, state))


async def _standing(state: Reads, wanted: KernelPoint) -> KernelPoint:
    async with opened(state["plan"]) as workspace:
        if not await asyncio.to_thread(workspace.store.claims.cases):
            return wanted
        task = await asyncio.to_thread(workspace.task, state["summary"].artifact)
        steps, ways, times = await asyncio.to_thread(_reached, workspace, state)
        others = sorted(times, key=lambda source: (times[source], source)) if steps else []
        for sha256 in (wanted.source_sha256, *others):
            source = await asyncio.to_thread(workspace.artifacts.get_text, sha256)
            if await workspace.evaluator.fails_a_claim(task, source) is not None:
                continue
            if sha256 == wanted.source_sha256:
                return wanted
            return await asyncio.to_thread(_point, workspace, state, ways, sha256)
    return wanted  # Then each step from it fails, and says on which input.


def _reached(
    workspace: Workspace, state: Reads
) -> tuple[list[Step], Mapping[str, Way], dict[str, float]]:
    """Return earlier iterations' steps, the ways that they took, and the times of their bests."""
    replay = workspace.store.replay
    steps = [step for step in replay.steps() if step.iteration < state["iteration"]]
    ways = ways_through(steps)
    return steps, ways, bests(steps, ways) if steps else {}


def _drawn(state: Reads) -> KernelPoint:
    plan, iteration = state["plan"], state["iteration"]
    with workspace_of(plan) as workspace:
        steps, ways, times = _reached(workspace, state)
        if not steps:
            return state["best"]
        ranked = sorted(times)
        speed = np.array([1.0 / times[source] for source in ranked])
        stream = generator(plan.seed, "start", iteration, state["rollout"])
        drawn = ranked[int(stream.choice(len(ranked), p=speed / speed.sum()))]
        return _point(workspace, state, ways, drawn)


def _point(
    workspace: Workspace, state: Reads, ways: Mapping[str, Way], sha256: str
) -> KernelPoint:
    """Return a kernel that was reached by its source."""
    task = workspace.task(state["summary"].artifact)
    source = workspace.artifacts.get_text(sha256)
    evaluation = workspace.evaluation(workspace.evaluator.key(task, source))
    way = ways[sha256]
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

"""Start point: where a rollout begins, the first at the best so far, the others at any that lives.

Reads plan, summary, place, best and start_point; what was reached comes from the replay buffer. A
few kernels of different design stay alive beside the best: a restructuring that lost at first gets
its repairs, and the search does not hang on one path.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

import numpy as np

from ....memory.records.evidence import Step
from ....tools.workspace import Workspace
from ...common.history.points import kernel_point
from ...common.history.steps import Way, ways_through
from ...common.randomness import generator
from ...common.workspaces import opened, workspace_of
from ...records.kernels import KNOWN_KERNEL, KernelPoint
from ...records.plan import RunPlan
from ...records.task import TaskSummary

MOST_PARENTS, FEWEST_PARENTS = 4, 2
"""Kernels that rollouts may begin at; of one design, the initial one is the second."""
SHAPING = math.log(1.05)
"""Log gain, either way, from which a step is part of a kernel's design: what moves its time less is
no other design."""
ALIVE = 2.0
"""Times the best's time up to which a kernel of another design is gone on with."""


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

    All but the first draw among the kernels of different design that are alive, faster ones more
    often; those of an iteration take different ones as long as there are. A kernel that an input
    which a reviewer found since shows wrong is no start: the fastest that stands takes its place.
    """
    if "start_point" in state:
        return state["start_point"]
    if state["rollout"] == 0 or state["iteration"] == 0:
        return await _begins_at(state, state["best"])
    return await _begins_at(state, await asyncio.to_thread(_drawn, state))


async def standing(
    plan: RunPlan, summary: TaskSummary, points: Sequence[KernelPoint]
) -> KernelPoint | None:
    """Return the first of some kernels that no input which a reviewer found shows wrong; None where
    all are wrong."""
    async with opened(plan) as workspace:
        if not await asyncio.to_thread(workspace.store.claims.cases):
            return points[0]
        by_source = {point.source_sha256: point for point in points}
        found = await _first_standing(workspace, summary, by_source)
    return None if found is None else by_source[found]


async def _first_standing(
    workspace: Workspace, summary: TaskSummary, sources: Iterable[str]
) -> str | None:
    task = await asyncio.to_thread(workspace.task, summary.artifact)
    for sha256 in sources:
        source = await asyncio.to_thread(workspace.artifacts.get_text, sha256)
        if await workspace.evaluator.fails_a_claim(task, source) is None:
            return sha256
    return None


async def _begins_at(state: Reads, wanted: KernelPoint) -> KernelPoint:
    """Return the kernel that is wanted, or the fastest other where an input shows it wrong."""
    async with opened(state["plan"]) as workspace:
        if not await asyncio.to_thread(workspace.store.claims.cases):
            return wanted
        steps, ways, times = await asyncio.to_thread(_reached, workspace, state)
        others = sorted(times, key=lambda source: (times[source], source)) if steps else []
        sources = (wanted.source_sha256, *others)
        found = await _first_standing(workspace, state["summary"], sources)
        if found in (None, wanted.source_sha256):
            return wanted  # Where none stands, each step from it fails, and says on which input.
        return await asyncio.to_thread(_point, workspace, state, ways, found)


def _reached(
    workspace: Workspace, state: Reads
) -> tuple[list[Step], Mapping[str, Way], dict[str, float]]:
    """Return earlier iterations' steps, the ways that they took, and the times of what passed."""
    replay = workspace.store.replay
    steps = [step for step in replay.steps() if step.iteration < state["iteration"]]
    ways = ways_through(steps)
    return steps, ways, times_of(steps) if steps else {}


def _drawn(state: Reads) -> KernelPoint:
    plan, iteration = state["plan"], state["iteration"]
    with workspace_of(plan) as workspace:
        steps, ways, times = _reached(workspace, state)
        if not steps:
            return state["best"]
        alive = parents(times, ways, steps[0].parent_sha256)
        speed = np.array([1.0 / times[source] for source in alive])
        # One order for all rollouts of an iteration, of which each takes its place.
        stream = generator(plan.seed, "start", iteration)
        order = stream.choice(len(alive), len(alive), replace=False, p=speed / speed.sum())
        drawn = alive[int(order[(state["rollout"] - 1) % len(alive)])]
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


def times_of(steps: Sequence[Step]) -> dict[str, float]:
    """Return microseconds of the initial kernel and of all that passed since, by source.

    Args:
        steps: the run's, from the first on, ordered by iteration, rollout and step.
    """
    return {steps[0].parent_sha256: steps[0].microseconds_before} | {
        step.child_sha256: step.microseconds_after
        for step in steps
        if step.child_sha256 and step.microseconds_after is not None
    }


def parents(times: Mapping[str, float], ways: Mapping[str, Way], initial: str) -> list[str]:
    """Return the kernels that rollouts may begin at, the fastest first.

    The fastest of all, and the fastest of each other design, that is one with a step that none of
    the faster ones has and that moved the time; with none, the initial kernel.

    Args:
        times: microseconds by source.
        ways: the steps to each.
        initial: the first kernel's source.
    """
    ranked = sorted(times, key=lambda source: (times[source], len(ways[source]), source))
    alive: dict[str, frozenset[str]] = {}
    for source in ranked:
        made = design(ways[source])
        if alive and times[source] > ALIVE * times[ranked[0]] or len(alive) == MOST_PARENTS:
            break
        if all(made - other for other in alive.values()):
            alive[source] = made
    if len(alive) < FEWEST_PARENTS:
        alive.setdefault(initial, frozenset())
    return list(alive)


def design(way: Way) -> frozenset[str]:
    """Return the techniques that made a kernel what it is: those that moved its time."""
    names: set[str] = set()
    for step in way:
        if step.technique == KNOWN_KERNEL:
            names.update(map(str, step.parameters.get("after", ())))
        elif abs(step.log_gain or 0.0) >= SHAPING:
            names.add(step.technique)
    return frozenset(names)

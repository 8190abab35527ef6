"""A run's steps: those that a rollout may know of, and the ways they took to each kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....memory.records.evidence import Step
from ....tools.workspace import Workspace
from ...records.kernels import TechniqueStep

Place = tuple[int, int, int]
"""Iteration, rollout and step."""
Way = tuple[Step, ...]
"""The steps between the initial kernel and another, in order."""


def visible_steps(workspace: Workspace, place: Place) -> list[Step]:
    """Return earlier iterations' steps and the rollout's own before: what its agents may speak of.

    What parallel rollouts do meanwhile is left out, so that a run does not depend on their timing.
    """
    iteration, rollout, step = place
    return [
        each
        for each in workspace.store.replay.steps()
        if each.iteration < iteration
        or ((each.iteration, each.rollout) == (iteration, rollout) and each.step < step)
    ]


def ways_through(steps: Iterable[Step]) -> Mapping[str, Way]:
    """Return, by source, how each kernel that passed was reached first.

    Args:
        steps: ordered by iteration, rollout and step, from the run's first on.
    """
    ways: dict[str, Way] = {}
    for step in steps:
        way = ways.setdefault(step.parent_sha256, ())
        if step.child_sha256 is not None and step.microseconds_after is not None:
            ways.setdefault(step.child_sha256, (*way, step))
    return ways


def path_to(source_sha256: str, steps: Iterable[Step]) -> tuple[TechniqueStep, ...]:
    """Return the techniques between the initial kernel and another, in order."""
    return tuple(
        TechniqueStep(
            technique=step.technique,
            parameters=step.parameters,
            launch=step.launch,
            gain=step.microseconds_before / step.microseconds_after,
        )
        for step in ways_through(steps).get(source_sha256, ())
        if step.microseconds_after is not None
    )

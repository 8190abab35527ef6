"""The steps that a rollout may know of: earlier iterations' and its own."""

from __future__ import annotations

from ...memory.records import Step
from ...tools.workspace import Workspace


def visible_steps(workspace: Workspace, iteration: int, rollout: int) -> list[Step]:
    """Return earlier iterations' steps and this rollout's own: what its agents may speak of.

    What parallel rollouts do meanwhile is left out, so that a run does not depend on their timing.
    """
    return [
        step
        for step in workspace.store.replay.steps()
        if step.iteration < iteration or (step.iteration, step.rollout) == (iteration, rollout)
    ]

"""The steps that a rollout may know of: earlier iterations' and its own."""

from __future__ import annotations

from typing import TypedDict

from ...memory.records import Step
from ...tools.workspace import Workspace


class Past(TypedDict):
    """Which steps a prompt may speak of."""

    iteration: int
    steps: tuple[Step, ...]


def known_steps(workspace: Workspace, state: Past) -> list[Step]:
    """Return earlier iterations' steps and this rollout's own: what its prompts may speak of.

    What parallel rollouts do meanwhile is left out, so that a run does not depend on their timing.
    """
    steps = workspace.store.replay.steps()
    return [*(step for step in steps if step.iteration < state["iteration"]), *state["steps"]]

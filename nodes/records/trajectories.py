"""What rollouts report to their parent, and how reports become one."""

from __future__ import annotations

from typing import Any

from pydantic import (
    model_validator,
)

from ...harness.errors import typed
from ...harness.records.record import Record
from .kernels import KernelPoint, faster


class Trajectory(Record):
    """What one rollout reports to its parent; its steps are in the run's replay buffer."""

    id: str
    """ITERATION.ROLLOUT."""
    iteration: int
    """From 0."""
    rollout: int
    """Which of the iteration's rollouts, from 0."""
    best: KernelPoint
    """Its fastest kernel."""
    ended: str
    """Why it stopped."""
    over: bool = False
    """Whether the whole search is over, not this trajectory alone."""

    @model_validator(mode="before")
    @classmethod
    def _without_details(cls, values: Any) -> Any:
        """Take a checkpoint of an earlier version, which held what the store holds too."""
        if not isinstance(values, dict):
            return values
        return {name: values[name] for name in values if name not in ("steps", "passed")}


def merge_newest(
    left: dict[str, Trajectory] | None, right: dict[str, Trajectory] | None
) -> dict[str, Trajectory]:
    """Reducer: union by id of the newest iteration's; a trajectory reported twice counts once.

    What earlier ones came to is in the best so far and in the run's store. One in JSON is a record.
    """
    reported: dict[str, Trajectory] = typed(
        dict[str, Trajectory], "trajectories", right or {}
    )
    merged = (left or {}) | reported
    newest = max((each.iteration for each in merged.values()), default=0)
    return {key: each for key, each in merged.items() if each.iteration == newest}


def best_so_far(best: KernelPoint, trajectories: dict[str, Trajectory]) -> KernelPoint:
    """Return the fastest kernel of the best before and what trajectories reported."""
    for trajectory in trajectories.values():
        best = faster(best, trajectory.best)
    return best

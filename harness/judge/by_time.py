"""What the time of a kernel says of what holds it back, where no hardware counter does."""

from __future__ import annotations

from ..records.profiles import Bottleneck
from ..records.tasks import Task

LAUNCH_MICROSECONDS = 4.0
"""A kernel shorter than this mostly waits for its own start."""
DRAM_SHARE = 0.5
"""From this share of the memory's bandwidth on, counting each byte of the task once, it limits."""
NO_COUNTERS = (
    "No hardware counters are known here: the bottleneck is judged from the time and the task's "
    "own bytes."
)


def bottleneck_by_time(
    task: Task, call: float, launch: float, bytes_per_second: float
) -> Bottleneck:
    """Return what holds a launch back.

    Args:
        task: what is computed.
        call: microseconds of all launches.
        launch: microseconds of this one.
        bytes_per_second: what the device's memory moves; 0 where nobody knows.
    """
    if launch < LAUNCH_MICROSECONDS:
        return "launch"
    moved = sum(spec.nbytes for spec in task.full.tensors) / (call * 1e-6)
    return "dram" if 0.0 < DRAM_SHARE * bytes_per_second <= moved else "latency"

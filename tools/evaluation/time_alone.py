"""A profile of which only the times are kept: what is known where nobody reads counters."""

from __future__ import annotations

from ...harness.gpus import known_gpu
from ...harness.judge.by_time import NO_COUNTERS, bottleneck_by_time
from ...harness.records.profiles import ELAPSED_CYCLES, LaunchProfile, Profile
from ...harness.records.tasks import Task
from ..wording.device import peaks_of

KEPT = (ELAPSED_CYCLES, "gpu__time_duration.sum")
"""Metrics that are times."""


def time_alone(task: Task, profile: Profile) -> Profile:
    """Return the launches of a profile with their shapes and times, and nothing that was counted.

    What holds each back is judged by its time, as on a GPU whose counters cannot be read.
    """
    gpu = known_gpu(profile.gpu)
    bandwidth = peaks_of(gpu).dram_bytes if gpu else 0.0

    def bare(launch: LaunchProfile) -> LaunchProfile:
        return LaunchProfile(
            kernel=launch.kernel,
            grid=launch.grid,
            block=launch.block,
            dynamic_shared_bytes=launch.dynamic_shared_bytes,
            microseconds=launch.microseconds,
            metrics={name: launch.metrics[name] for name in KEPT if name in launch.metrics},
            bottleneck=bottleneck_by_time(
                task, profile.microseconds, launch.microseconds, bandwidth
            ),
            advice=(NO_COUNTERS,),
            like=launch.like,
        )

    return profile.model_copy(update={"launches": tuple(map(bare, profile.launches))})

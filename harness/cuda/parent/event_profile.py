"""A profile without hardware counters: launches with event times, and ptxas's static facts."""

from __future__ import annotations

from collections.abc import Sequence

from ...judge.by_time import NO_COUNTERS, bottleneck_by_time
from ...records.builds import Build, KernelResources
from ...records.profiles import Bottleneck, LaunchProfile, Profile
from ...records.tasks import Task
from ...records.timings import Provenance
from ...vetting.symbols import readable
from ..reports import LaunchAnswer


def event_profile(
    task: Task,
    built: Build,
    launches: Sequence[LaunchAnswer],
    gpu: str,
    sms: int,
    copy_bytes_per_second: float,
) -> Profile:
    """Return the profile of one call of launch().

    Args:
        launches: the worker's, in order.
        sms: multiprocessors of the GPU.
        copy_bytes_per_second: what a large copy on it reads and writes.
    """
    resources = {kernel.kernel: kernel for kernel in built.kernels}
    total = sum(launch.microseconds or 0.0 for launch in launches)
    return Profile(
        launches=tuple(
            _launch(
                launch,
                resources.get(launch.kernel),
                bottleneck_by_time(
                    task, total, launch.microseconds or 0.0, copy_bytes_per_second
                ),
                sms,
            )
            for launch in launches
        ),
        gpu=gpu,
        provenance=Provenance.EVENTS,
    )


def _launch(
    launch: LaunchAnswer, resources: KernelResources | None, limit: Bottleneck, sms: int
) -> LaunchProfile:
    grid, block = launch.grid, launch.block
    microseconds = launch.microseconds or 0.0
    metrics: dict[str, float] = {
        "gpu__time_duration.sum": microseconds * 1e3,
        "launch__grid_size": grid[0] * grid[1] * grid[2],
        "launch__block_size": block[0] * block[1] * block[2],
        "launch__shared_mem_per_block_dynamic": float(launch.shared_bytes),
        "launch__sm_count": float(sms),
    }
    if resources:
        metrics |= {
            "launch__registers_per_thread": resources.registers,
            "launch__shared_mem_per_block_static": resources.static_shared_bytes,
            "ptxas__spill_store_bytes": resources.spill_store_bytes,
            "ptxas__spill_load_bytes": resources.spill_load_bytes,
        }
    return LaunchProfile(
        kernel=readable(launch.kernel),
        grid=grid,
        block=block,
        dynamic_shared_bytes=launch.shared_bytes,
        microseconds=microseconds,
        metrics=metrics,
        bottleneck=limit,
        advice=(NO_COUNTERS,),
    )

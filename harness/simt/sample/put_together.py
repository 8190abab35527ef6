"""Puts the counters of a launch together, whichever of its blocks ran."""

from __future__ import annotations

from collections.abc import Sequence

from ...occupancy import Occupancy
from ..counters import Counts, LaunchCounters
from .blocks.sampled_runs import SampledRuns
from .blocks.unlike_blocks import Each, levels
from .instructions.slowest_warp import SlowestPath
from .traffic.contention import contention_of
from .traffic.memory_traffic import MemoryTraffic


def put_together(
    runs: SampledRuns,
    held: Occupancy,
    samples: Sequence[Counts],
    traffic: MemoryTraffic,
    chain_clocks: float,
    slowest: SlowestPath,
    each: Each,
) -> LaunchCounters:
    """Return the counters that every launch has.

    Args:
        runs: its blocks that ran.
        held: its occupancy.
        samples: what they counted, scaled to the grid.
        traffic: what the launch moves.
        chain_clocks: clocks of an average warp alone.
        slowest: what the slowest path of a block is beside that.
        each: what each sampled block takes.
    """
    runner = runs.runner
    launch = runner.asked.launch
    return LaunchCounters(
        kernel=launch.kernel,
        grid=launch.grid,
        block=launch.block,
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        samples=list(samples),
        sampled_blocks=len(runner.ran),
        resident_blocks=max(1, held.blocks),
        chain_clocks=chain_clocks * slowest.delay,
        slowest_warp=slowest.delay,
        longest_block=runs.longest_block(),
        work_levels=levels(each.instructions / max(1.0, each.instructions.mean()), runs.blocks),
        clock_levels=[]
        if each.clocks is None
        else levels(each.clocks / each.clocks.mean(), runs.blocks),
        **traffic.counted(),
        atomic_lines=runner.atomic_lines(),
        **contention_of(runner)._asdict(),
        local_bytes=float(launch.local_bytes),
        constant_bytes=64.0 * runs.resident.constant_lines,
        read=runner.read(),
        simulated=runner.spent,
    )

"""Turns the counters of a launch into the demands that the time model weighs."""

from __future__ import annotations

from .counters import Counts, LaunchCounters
from .time_model import Demand


def demand(launch: LaunchCounters, counts: Counts) -> Demand:
    """Return what a launch asks of the GPU, by one of its samples."""
    hit_rate = l1_hit_rate(launch)
    missed = 1 - hit_rate
    reductions = counts.atomic_lanes
    return Demand(
        blocks=launch.blocks,
        resident_blocks=launch.resident_blocks,
        pipes=counts.pipes,
        tensor_operations=counts.tensor_operations,
        # A store takes one wavefront more than the lines it covers.
        global_wavefronts=counts.load_lines + counts.store_lines + counts.store_requests
        + counts.atomic_lines,
        shared_wavefronts=counts.shared_wavefronts,
        l2_sectors=counts.load_sectors * missed + counts.store_sectors + reductions,
        l2_requests=counts.load_lines * missed + counts.store_lines + counts.atomic_lines,
        dram_read_bytes=launch.read_footprint + launch.reread_bytes,
        dram_write_bytes=launch.write_footprint,
        hottest_atomic=counts.hottest_atomic,
        chain_clocks=launch.chain_clocks,
    )  # fmt: skip


def l1_hit_rate(launch: LaunchCounters) -> float:
    """Return the share of load sectors found in the L1; 0 where nothing is loaded."""
    if launch.l1_load_sectors <= 0:
        return 0.0
    return min(1.0, launch.l1_hit_sectors / launch.l1_load_sectors)

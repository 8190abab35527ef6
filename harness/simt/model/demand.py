"""Turns the counters of a launch into the demands that the time model weighs."""

from __future__ import annotations

from ...gpus import Gpu
from ..counters import Counts, LaunchCounters
from .constants import constants_of
from .time_model import Demand

COPY_WAVEFRONTS = 1.5
"""What an asynchronous copy past the L1 takes of the load/store unit, whatever it writes: what
comes from the L2 does not go through it. Between 1.0 and 2.2 in three launches, by what ncu's
l1tex__data_pipe_lsu_wavefronts has beside the other accesses."""


def demand(gpu: Gpu, launch: LaunchCounters, counts: Counts) -> Demand:
    """Return what a launch asks of the GPU, by one of its samples."""
    missed = 1 - l1_hit_rate(launch)
    local_reads = counts.local_sectors - counts.local_store_sectors
    local_missed = _local_miss_rate(gpu, launch)
    turned = counts.hottest_atomic
    # The hottest sector's may all be floating-point, whatever others there are elsewhere.
    floats = min(1.0, counts.float_atomics / turned) if turned else 0.0
    return Demand(
        blocks=launch.blocks,
        resident_blocks=launch.resident_blocks,
        pipes=counts.pipes,
        tensor_operations=counts.tensor_products * 2048 or counts.tensor_operations,
        # A store takes one wavefront more than the lines it covers.
        global_wavefronts=counts.load_lines - counts.copy_lines + counts.store_lines
        + counts.store_requests + counts.atomic_lines + counts.local_sectors / 4,
        shared_wavefronts=counts.shared_wavefronts - counts.copy_wavefronts
        + COPY_WAVEFRONTS * counts.copy_requests,
        constant_words=counts.constant_words,
        constant_missed=constants_of(gpu).missed_constants(launch.constant_bytes),
        l2_read_sectors=counts.load_sectors * missed + local_reads * local_missed
        + counts.copy_fetched - counts.copy_sectors,
        l2_read_requests=counts.load_lines * launch.l1_missed_lines
        + local_reads / 4 * local_missed,
        l2_write_sectors=counts.store_sectors + counts.local_store_sectors,
        l2_write_requests=counts.store_lines + counts.local_store_sectors / 4,
        dram_read_bytes=launch.read_footprint + launch.reread_bytes + launch.filled_bytes,
        dram_write_bytes=launch.write_footprint,
        dram_accesses=launch.dram_accesses,
        atomic_nanoseconds=turned
        * (
            floats * constants_of(gpu).atomic_nanoseconds
            + (1 - floats) * constants_of(gpu).integer_atomic_nanoseconds
        ),
        atomic_turns=counts.atomic_turns,
        atomic_passes=counts.atomic_passes,
        contended_lines=launch.contended_lines,
        contended_share=launch.contended_share,
        chain_clocks=launch.chain_clocks,
        path_blocks=launch.path_blocks,
        path_waits=launch.path_waits,
        barriers_per_warp=counts.barriers_per_warp,
        copied_share=counts.copy_sectors / counts.load_sectors if counts.load_sectors else 0.0,
        longest_block=launch.longest_block,
        work_levels=tuple(launch.work_levels),
        clock_levels=tuple(launch.clock_levels),
    )  # fmt: skip


def _local_miss_rate(gpu: Gpu, launch: LaunchCounters) -> float:
    """Return the share of local sectors that go past the L1, which keeps what fits of them."""
    resident = launch.local_bytes * launch.threads * launch.resident_blocks
    room = gpu.limits.l1_bytes - launch.resident_blocks * launch.dynamic_shared_bytes
    return 0.0 if resident <= 0 else max(0.0, 1 - max(room, 0) / resident)


def l1_hit_rate(launch: LaunchCounters) -> float:
    """Return the share of load sectors found in the L1; 0 where nothing is loaded."""
    if launch.l1_load_sectors <= 0:
        return 0.0
    return min(1.0, launch.l1_hit_sectors / launch.l1_load_sectors)

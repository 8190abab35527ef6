"""The time model's constants: the H200's, measured by micro-kernels, and carried over to others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from ...gpus import Gpu, architecture_family, find_gpu


@dataclass(frozen=True)
class TimeConstants:
    """What no data sheet gives. Clocks are SM clocks."""

    dram_efficiency: float
    """Achievable share of the data sheet's DRAM bandwidth."""
    dirty_bytes: float
    """Written lines that lie in the L2 after a flush that only writes."""
    dram_accesses_per_nanosecond: float
    """Accesses of DRAM to single places far apart."""
    l2_read_sectors_per_clock: float
    """32-byte sectors that the whole L2 delivers."""
    l2_read_requests_per_clock: float
    """Requests of single sectors."""
    l2_write_sectors_per_clock: float
    l2_write_requests_per_clock: float
    clocks_per_block: float
    """Chip-wide clocks between two block launches."""
    dram_latency: float
    """Clocks of a load from DRAM under load."""
    latency_spread: float
    """Standard deviation of that, as a share of it: of several loads the last is waited for."""
    l2_latency: float
    l1_latency: float
    launch_microseconds: float
    """Launch overhead that a timed call sees."""
    further_launch_microseconds: float
    """The same of each launch after the first of a call."""
    copy_microseconds: float
    """What the launch of a copy takes more."""
    row_microseconds: float
    """A row that is copied or filled alone: n rows take n to the power of `ROWS` times that."""
    rows_bytes_per_nanosecond: float
    """Bytes read and written by copies in rows, however wide."""
    atomic_nanoseconds: float
    """Between two floating-point atomics on the same address."""
    integer_atomic_nanoseconds: float
    atomic_passes_per_nanosecond: float
    """Scattered atomics of the whole chip."""
    atomic_turns_per_nanosecond: float
    """Atomics on a single line; more lines lie in more slices of the L2."""
    constant_clocks: float
    """Clocks of an SM for one word of constant memory that lanes of a warp name by a register."""
    constant_latency: float
    """Clocks that such a read waits for each word beyond its first."""
    constant_cache_bytes: float
    """Of constant memory that an SM keeps, by how many random reads of more miss it."""
    constant_miss_clocks: float
    """Clocks of an SM that such a word takes more."""
    constant_miss_latency: float
    """Clocks that the read itself waits more."""
    barrier_clocks: float
    """Clocks of an SM for one warp at a barrier."""
    tensor_efficiency: float
    """Share of the tensor cores' peak that mma.sync reaches."""
    tensor_clock_share: float
    """Share of the boost clock that is held while the tensor cores work."""
    issue_efficiency: float
    """Share of the issue slots that a kernel of nothing but multiply-adds fills."""
    overlap: float
    """Exponent of the norm that combines the resources: infinity would be a perfect overlap."""
    hop_clocks: float
    """Until a block sees what another stored, beside the look itself."""
    atomic_hop_clocks: float
    """The same of an atomic, as in a barrier of the grid."""
    block_turnover: float
    """Clocks between a block's end and its successor's first instruction."""
    origin: str
    """Where the constants are from."""

    def missed_constants(self, read_bytes: float) -> float:
        """Return the share of that much constant memory that an SM's cache of it lacks."""
        return max(0.0, 1 - self.constant_cache_bytes / read_bytes) if read_bytes else 0.0


_H200 = TimeConstants(
    dram_efficiency=0.897,
    dirty_bytes=21.7e6,
    dram_accesses_per_nanosecond=41.0,
    l2_read_sectors_per_clock=146.0,
    l2_read_requests_per_clock=76.0,
    l2_write_sectors_per_clock=73.0,
    l2_write_requests_per_clock=36.8,
    clocks_per_block=1.19,
    dram_latency=857.0,
    latency_spread=0.28,
    l2_latency=281.0,
    l1_latency=34.0,
    launch_microseconds=2.73,
    further_launch_microseconds=1.40,
    copy_microseconds=0.63,
    row_microseconds=0.024,
    rows_bytes_per_nanosecond=2110.0,
    atomic_nanoseconds=1.758,
    integer_atomic_nanoseconds=0.733,
    atomic_passes_per_nanosecond=103.0,
    atomic_turns_per_nanosecond=1.45,
    constant_clocks=2.01,
    constant_latency=11.1,
    constant_cache_bytes=3050.0,
    constant_miss_clocks=33.0,
    constant_miss_latency=83.0,
    barrier_clocks=2.4,
    tensor_efficiency=0.65,
    tensor_clock_share=0.914,
    issue_efficiency=0.978,
    overlap=2.82,
    hop_clocks=943.0,
    atomic_hop_clocks=1450.0,
    block_turnover=416.0,
    origin="measured on one H200 with micro-kernels (benchmarks/ground_truth)",
)


ROWS = 0.59
"""Exponent by which rows of one copy go beside each other."""


@cache
def constants_of(gpu: Gpu) -> TimeConstants:
    """Return the constants of a GPU: of any but the H200 scaled where the chip's size says how."""
    measured = find_gpu("H200")
    if gpu == measured:
        return _H200
    size = gpu.l2_bytes_per_clock / 32 / _H200.l2_read_sectors_per_clock
    speed = gpu.clock_ghz / measured.clock_ghz
    hopper = architecture_family(gpu.arch) == "hopper"
    return replace(
        _H200,
        dirty_bytes=_H200.dirty_bytes * size,
        dram_accesses_per_nanosecond=_H200.dram_accesses_per_nanosecond * size,
        l2_read_sectors_per_clock=_H200.l2_read_sectors_per_clock * size,
        l2_read_requests_per_clock=_H200.l2_read_requests_per_clock * size,
        l2_write_sectors_per_clock=_H200.l2_write_sectors_per_clock * size,
        l2_write_requests_per_clock=_H200.l2_write_requests_per_clock * size,
        dram_latency=gpu.dram_nanoseconds * gpu.clock_ghz,
        atomic_nanoseconds=_H200.atomic_nanoseconds / speed,
        integer_atomic_nanoseconds=_H200.integer_atomic_nanoseconds / speed,
        atomic_passes_per_nanosecond=_H200.atomic_passes_per_nanosecond * size * speed,
        atomic_turns_per_nanosecond=_H200.atomic_turns_per_nanosecond * speed,
        rows_bytes_per_nanosecond=_H200.rows_bytes_per_nanosecond
        * (gpu.dram_gigabytes_per_second / measured.dram_gigabytes_per_second),
        tensor_efficiency=_H200.tensor_efficiency if hopper else 0.95,
        origin="assumed: the H200's constants scaled by L2 and clock, not measured on this GPU",
    )

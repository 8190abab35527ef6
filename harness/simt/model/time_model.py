"""Estimates how long a launch takes from what it demands of each resource of a named GPU.

The structure (which terms exist and how they combine) was found by comparing with 25 launches
measured on one H200; benchmarks/simulator/simulated_vs_measured.py shows how well it holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...gpus import Gpu
from ...records.profiles import Bottleneck
from ..counters import Level
from .constants import constants_of

CONTENDED_LINES = 0.56
"""Exponent by which more lines than one bring atomics to more slices of the L2."""
TIE = 0.85
"""Another resource is named beside the first from this share of the first's time."""
EVEN_BLOCKS = 16.0
"""Blocks of a grid to an SM up to which the last round of blocks finds the SMs as they were."""
NEXT_TO_IDLE = 16.0
"""How much less a block does that has no part in the work of others, and all such together."""
PHASED_BLOCKS = 2.0
"""Blocks to an SM up to which barriers keep work and memory apart."""
FURTHER_BLOCKS = 1.5
"""Exponent by which more of them bring both together."""
LONG_BLOCKS = 0.5
"""Share of the time in turns where a block lives as long as its grid."""
MANY_ROUNDS = 10.0
"""Blocks after one another on an SM from which it is half of the way to all. These four are
fitted to the launches of probe_kernels.cu, held_out.cu and second_look.cu that have barriers."""


@dataclass(frozen=True)
class Demand:
    """What one launch asks of the GPU; every count is for the whole grid."""

    blocks: int
    resident_blocks: int
    """Blocks that one SM holds at a time."""
    pipes: dict[str, float]
    """Warp instructions by pipe: fma, fma_heavy, alu, xu, fp64, fp16, lsu, tensor, control."""
    tensor_operations: float
    """Multiply-adds on the tensor cores."""
    global_wavefronts: float
    """LSU data wavefronts of global accesses: one for each 128-byte line of a request."""
    shared_wavefronts: float
    l2_read_sectors: float
    """32-byte sectors that reach the L2 for reading."""
    l2_read_requests: float
    """128-byte lines of requests that do."""
    l2_write_sectors: float
    l2_write_requests: float
    dram_read_bytes: float
    dram_write_bytes: float
    dram_accesses: float
    """Accesses of DRAM to single places, far from those beside them."""
    atomic_nanoseconds: float
    """What the most contended sector takes for its atomics, one after the other."""
    atomic_turns: float
    atomic_passes: float
    """See counters.Counts."""
    contended_lines: float
    """Distinct lines on which the atomics take longest."""
    contended_share: float
    """Of `atomic_turns`, those on these lines."""
    chain_clocks: float
    """Clocks that one warp needs alone, from its dependences and latencies."""
    barriers_per_warp: float = 0.0
    """On a block's slowest path."""
    copied_share: float = 0.0
    """Of the sectors loaded, those that asynchronous copies bring while the warps go on."""
    longest_block: float = 1.0
    """Work of the longest block over an average one's."""
    work_levels: Sequence[Level] = ()
    clock_levels: Sequence[Level] = ()
    """See counters.LaunchCounters."""
    path_blocks: float = 1.0
    path_waits: float = 0.0
    """Blocks' work in series where blocks wait for blocks, and clocks until they see it."""
    constant_words: float = 0.0
    """Words of constant memory that reads name, each its distinct ones."""
    constant_missed: float = 0.0
    """Share of them that the cache of constants lacks."""

    @property
    def l2_sectors(self) -> float:
        """32-byte sectors that reach the L2."""
        return self.l2_read_sectors + self.l2_write_sectors + self.atomic_passes

    @property
    def instructions(self) -> float:
        """Warp instructions issued."""
        return sum(self.pipes.values())


@dataclass(frozen=True)
class Estimate:
    """The time of one launch and the time each resource alone would need, in microseconds."""

    microseconds: float
    terms: dict[str, float]
    bottleneck: Bottleneck
    ties: tuple[Bottleneck, ...]
    pipe_clocks: dict[str, float] = field(default_factory=dict)
    """Clocks that each pipe of one SM is busy."""
    turns_microseconds: float = 0.0
    """What of the time is because blocks work and wait in turns."""


def estimate(gpu: Gpu, demand: Demand, *, l2_left_dirty: bool = False) -> Estimate:
    """Return the estimated time of a launch.

    Args:
        gpu: the GPU.
        demand: what the launch asks of it.
        l2_left_dirty: what ran before left written lines in the L2, as a flush that only writes
            does; the harness's own flush ends with reads.
    """
    constants, clocks_per_us = constants_of(gpu), gpu.clock_ghz * 1e3
    if demand.tensor_operations:
        clocks_per_us *= constants.tensor_clock_share
    per_sm = _busiest_sm(gpu, demand)
    pipe_clocks = {name: clocks * per_sm for name, clocks in _pipe_clocks(gpu, demand).items()}
    tensor = pipe_clocks["tensor"] / clocks_per_us
    compute = max(value for name, value in pipe_clocks.items() if name != "tensor") / clocks_per_us
    wavefronts = demand.global_wavefronts + demand.shared_wavefronts
    lsu = max(wavefronts, demand.pipes.get("lsu", 0.0)) * per_sm / clocks_per_us
    l2 = _l2_clocks(gpu, demand) / clocks_per_us
    dram = _dram_microseconds(gpu, demand, l2_left_dirty)
    launch = demand.blocks * constants.clocks_per_block / clocks_per_us
    latency = _latency_clocks(gpu, demand) / clocks_per_us
    atomic = _atomic_microseconds(gpu, demand)
    lsu_name: Bottleneck = (
        "shared_memory" if demand.shared_wavefronts > demand.global_wavefronts else "lsu"
    )
    terms: dict[Bottleneck, float] = {
        "dram": dram, "l2": l2, lsu_name: lsu, "compute": compute, "tensor": tensor,
        "latency": latency, "launch": launch, "atomic": atomic,
    }  # fmt: skip
    ranked = sorted(terms, key=lambda name: -terms[name])
    ties = tuple(name for name in ranked[1:] if terms[name] >= TIE * terms[ranked[0]])
    microseconds = together(gpu, terms, in_phases=phased_share(gpu, demand))
    return Estimate(
        microseconds,
        {name: value for name, value in terms.items()},
        ranked[0],
        ties,
        pipe_clocks,
        microseconds - together(gpu, terms),
    )


def together(
    gpu: Gpu,
    terms: Mapping[Bottleneck, float] | Mapping[str, float],
    *,
    in_phases: float = 0.0,
) -> float:
    """Return the microseconds of a launch whose resources alone would need `terms`.

    Args:
        gpu: the GPU.
        terms: microseconds by resource.
        in_phases: the share, 0 to 1, in which the SM's own work and its waiting for memory follow
            each other.
    """
    alone: dict[str, float] = {str(name): value for name, value in terms.items()}
    inside = [
        max(alone.get("compute", 0.0), alone.get("tensor", 0.0)),
        alone.get("lsu", 0.0) or alone.get("shared_memory", 0.0),
    ]
    outside = [
        alone.get("l2", 0.0),
        alone.get("dram", 0.0),
        max(alone.get("launch", 0.0), alone.get("latency", 0.0)),
        alone.get("atomic", 0.0),
    ]
    overlap = constants_of(gpu).overlap
    overlapped = _norm([*inside, *outside], overlap)
    in_turn = _norm(inside, overlap) + _norm(outside, overlap)
    busy = overlapped + in_phases * (in_turn - overlapped)
    return busy + constants_of(gpu).launch_microseconds


def hidden_microseconds(gpu: Gpu, launches: int) -> float:
    """Return what of the overhead of so many launches, one after the other, the GPU hides."""
    constants = constants_of(gpu)
    each = constants.launch_microseconds - constants.further_launch_microseconds
    return max(0, launches - 1) * each


def _norm(parts: Sequence[float], exponent: float) -> float:
    largest = max(parts)
    if largest <= 0:
        return 0.0
    total = math.fsum((part / largest) ** exponent for part in parts)
    return largest * math.pow(total, 1 / exponent)


def phased_share(gpu: Gpu, demand: Demand) -> float:
    """Return in what share blocks work and wait in turns: where barriers hold few of them together.

    With one or two blocks to an SM there is no other to work while all warps of one wait for
    memory; blocks that come and go in many rounds wait most, asynchronous copies do not wait. A
    barrier more, an asynchronous copy less or fewer blocks never lower it.
    """
    held = min(1.0, demand.barriers_per_warp)
    few = min(1.0, math.pow(PHASED_BLOCKS / max(1, demand.resident_blocks), FURTHER_BLOCKS))
    rounds = demand.blocks / (gpu.sms * max(1, demand.resident_blocks))
    short = (LONG_BLOCKS + rounds / MANY_ROUNDS) / (1 + rounds / MANY_ROUNDS)
    return held * few * short * (1 - demand.copied_share)


def _l2_clocks(gpu: Gpu, demand: Demand) -> float:
    """Return the clocks of the L2: reads and writes share it; small requests cost as many."""
    constants = constants_of(gpu)
    return max(
        demand.l2_read_sectors / constants.l2_read_sectors_per_clock,
        demand.l2_read_requests / constants.l2_read_requests_per_clock,
    ) + max(
        demand.l2_write_sectors / constants.l2_write_sectors_per_clock,
        demand.l2_write_requests / constants.l2_write_requests_per_clock,
    )


def _dram_microseconds(gpu: Gpu, demand: Demand, l2_left_dirty: bool) -> float:
    constants = constants_of(gpu)
    read, written = demand.dram_read_bytes, demand.dram_write_bytes
    evicted = 0.0
    if l2_left_dirty and read:
        # What the kernel reads pushes out of the L2 what lay there dirty before.
        evicted = min(constants.dirty_bytes, read) * read / (read + written)
    peak = gpu.dram_gigabytes_per_second * constants.dram_efficiency * 1e3
    accesses = demand.dram_accesses / (constants.dram_accesses_per_nanosecond * 1e3)
    return max((read + written + evicted) / peak, accesses)


def _atomic_microseconds(gpu: Gpu, demand: Demand) -> float:
    """Return what atomics take: on one sector in turn, on few lines in few slices of the L2."""
    constants = constants_of(gpu)
    if demand.atomic_passes <= 0:
        return 0.0
    slices: float = max(1.0, demand.contended_lines) ** CONTENDED_LINES
    few = constants.atomic_turns_per_nanosecond * slices
    nanoseconds = max(
        demand.atomic_nanoseconds,
        demand.atomic_turns * demand.contended_share / few,
        demand.atomic_passes / constants.atomic_passes_per_nanosecond,
    )
    return nanoseconds * 1e-3


def _busiest_sm(gpu: Gpu, demand: Demand) -> float:
    """Return the share of the grid's work that the busiest SM does, however many are resident.

    Of the blocks that do so much at least it has its part, rounded up, whatever others there are:
    of blocks that do nothing none is any use. Of many blocks the SMs that are done early take more.
    """
    levels = demand.work_levels or [(float(demand.blocks), 1.0)]
    before = [0.0, *(blocks for blocks, _ in levels)]
    work = [(blocks - less) * each for less, (blocks, each) in zip(before, levels, strict=False)]
    most, nearly_all = 0.0, (1 - 1 / NEXT_TO_IDLE) * sum(work)
    for blocks, least in levels:
        # What next to idle blocks do, if it is little, is no part of the work of the others.
        those = sum(part for part, (_, each) in zip(work, levels, strict=True)
                    if each >= least / NEXT_TO_IDLE)  # fmt: skip
        most = max(most, _rounded(blocks / gpu.sms) * least / max(those, nearly_all))
    return max(most, 1 / gpu.sms, demand.longest_block / demand.blocks)


def _rounded(per_sm: float) -> float:
    """Return the blocks that the busiest SM has of so many for each."""
    return per_sm + (math.ceil(per_sm) - per_sm) * min(1.0, EVEN_BLOCKS / max(1.0, per_sm))


def _pipe_clocks(gpu: Gpu, demand: Demand) -> dict[str, float]:
    """Return the clocks each pipe needs, were all work on one SM."""
    rates, pipes, constants = gpu.throughput, demand.pipes, constants_of(gpu)
    heavy = pipes.get("fma_heavy", 0.0)
    fma = pipes.get("fma", 0.0)
    fp16 = pipes.get("fp16", 0.0)
    return {
        "issue": demand.instructions / (4 * constants.issue_efficiency),
        # Integer multiply-adds go through the heavy half of the FMA pipe.
        "fma": max((fma + heavy) * 32 / rates.fp32, heavy * 32 / rates.int32),
        "alu": pipes.get("alu", 0.0) * 32 / rates.int32,
        "xu": pipes.get("xu", 0.0) * 32 / rates.special,
        "fp64": pipes.get("fp64", 0.0) * 32 / rates.fp64,
        "fp16": fp16 * 64 / rates.fp16,
        "constant": demand.constant_words
        * (constants.constant_clocks + demand.constant_missed * constants.constant_miss_clocks),
        "barrier": pipes.get("barrier", 0.0) * constants.barrier_clocks,
        "tensor": demand.tensor_operations / (rates.tensor_fp16 * constants.tensor_efficiency),
    }


def _latency_clocks(gpu: Gpu, demand: Demand) -> float:
    """Return the clocks of resident blocks' rounds, of the longest block, of blocks in series."""
    slots = gpu.sms * max(1, demand.resident_blocks)
    chain = demand.chain_clocks
    levels = demand.clock_levels or demand.work_levels or [(float(demand.blocks), 1.0)]
    # Where blocks of unlike kinds are known by their clocks, the longest is among these.
    longest = levels[0][1] if demand.clock_levels else demand.longest_block
    alone = max(longest * chain, demand.path_blocks * chain + demand.path_waits)
    in_turn = max(_rounds(blocks / slots) * least for blocks, least in levels)
    turnovers = (_rounds(demand.blocks / slots) - 1) * constants_of(gpu).block_turnover
    return max(max(in_turn, demand.blocks / slots) * chain + turnovers, alone)


def _rounds(waves: float) -> float:
    """Return how often blocks follow each other where there are so many for each place."""
    if waves <= 4:  # the last wave is partly empty, but blocks do not end in step
        return max(1.0, (math.ceil(waves) + waves) / 2)
    return waves

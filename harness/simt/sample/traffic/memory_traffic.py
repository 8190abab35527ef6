"""What the loads of a launch find where: a replayed L1, the L2, DRAM; and how long they wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from ....gpus import Gpu
from ....occupancy import Occupancy, shared_carveout
from ...counters import Counts
from ...model.constants import TimeConstants, constants_of
from ...ptx.records import Module
from ...run.core import Result
from ...run.replay import Shape, replay_l1, trace_shape
from ...sass.mix import LOCAL_CLOCKS, SHARED_ATOMIC_CLOCKS, SHARED_CLOCKS
from ...sass.sums import words_a_read
from ..blocks.sampled_runs import SampledRuns
from ..blocks.unlike_blocks import asking_blocks
from .footprint import (
    Footprint,
    fetched_halves,
    fetched_share,
    filled_bytes,
    first_asked,
    first_halves,
    footprint_of,
    lost_reuse,
    partly_written,
)

WRITE_ACCESSES = 2.0
"""Accesses of DRAM for a store to a single place: it reads the rest, and writes."""


class Counted(TypedDict):
    """Fields of `LaunchCounters` that are of a launch's traffic."""

    l1_load_sectors: float
    l1_hit_sectors: float
    l1_missed_lines: float
    read_footprint: float
    write_footprint: float
    reread_bytes: float
    dram_accesses: float
    filled_bytes: float


class Near(NamedTuple):
    """Loads that are of shared or local memory: a generic address may be of any."""

    share: float
    clocks: float
    """What they take, times their share."""


@dataclass(frozen=True)
class MemoryTraffic:
    """Of the whole grid, and what a load at each index of the module waits, in clocks."""

    footprint: Footprint
    load_sectors: float
    hit_sectors: float
    """Those found in the L1."""
    missed_lines: float
    """Share of the lines of all requests that are asked for beyond the L1."""
    reread_bytes: float
    dram_accesses: float
    filled_bytes: float
    latencies: Sequence[float]
    spreads: Sequence[float]
    """Standard deviations of these."""
    echoes: Mapping[int, int]
    """Loads that ask for what another of their warp has asked for: that other one."""
    flights: Mapping[int, tuple[int, float]]
    """Loads of which another warp has just asked for a share: by which load, and what share."""

    def counted(self) -> Counted:
        """Return what of this the launch's counters hold."""
        return {
            "l1_load_sectors": self.load_sectors,
            "l1_hit_sectors": self.hit_sectors,
            "l1_missed_lines": self.missed_lines,
            "read_footprint": self.footprint.read,
            "write_footprint": self.footprint.written,
            "reread_bytes": self.reread_bytes,
            "dram_accesses": self.dram_accesses,
            "filled_bytes": self.filled_bytes,
        }


def traffic_of(
    gpu: Gpu,
    module: Module,
    runs: SampledRuns,
    held: Occupancy,
    shared_bytes: int,
    samples: Sequence[Counts],
    shares: npt.NDArray[np.float64],
) -> MemoryTraffic:
    """Return what a launch moves, from what the blocks of one SM did together.

    Args:
        gpu: the GPU that is simulated.
        module: what was run.
        runs: its blocks that ran.
        held: its occupancy.
        shared_bytes: static and dynamic shared memory of a block.
        samples: what the random samples counted.
        shares: of the traffic of each instruction, what the machine code makes.
    """
    constants = constants_of(gpu)
    resident = runs.resident
    carveout = shared_carveout(gpu.limits, shared_bytes, max(1, held.blocks))
    assert resident.trace is not None
    loads = _loads(module)
    atomics = [*_of_opcode(module, "atom"), *_of_opcode(module, "red")]
    reading = [*loads, *atomics]
    shape = trace_shape(resident.trace, len(module.instructions))
    footprint = footprint_of(
        gpu, runs.runner.asked.memory, runs.runner.fresh, runs.runner.uses, runs.blocks,
        asking_blocks(runs), held, whole_range=runs.whole_range,
    )  # fmt: skip
    if not _shows_loads(shape, loads, runs):
        return _unseen(gpu, module, runs, footprint, samples)
    replay = replay_l1(
        [resident.trace], gpu.limits.l1_bytes - carveout, len(module.instructions)
    )  # fmt: skip
    seen, hits = replay.made(shares)
    group_scale = runs.scale(loads, float(replay.sectors[loads].sum()))
    load_sectors, load_hits = float(seen[loads].sum()), float(hits[loads].sum())
    misses_of = 1 - np.divide(hits, seen, where=seen > 0, out=np.zeros(len(seen)))
    missed = load_sectors - load_hits
    again = 0.0
    sectors, by = replay.first_misses(atomics)
    readers = runs.readers(sectors)
    loaded = ~np.isin(by, atomics)
    distinct = float(np.count_nonzero(loaded))
    if footprint.overflow:
        # The resident blocks of all SMs together overflow the L2: what one SM loads again, its
        # L1 having lost it, the L2 has lost as well.
        again = lost_reuse(footprint.overflow) * max(0.0, missed - distinct) * 32 * group_scale
    reread = footprint.between_waves + again
    misses = missed * group_scale * 32
    lost = min(1.0, again / max(32.0, misses - distinct * group_scale * 32))

    def served(read: float) -> npt.NDArray[np.float64]:
        """Return how often DRAM serves who asks first for a sector; `read`: bytes not read yet."""
        return first_asked(readers, (read + footprint.between_waves) / (group_scale * 32))

    def by_instruction(first: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the share of each instruction's misses that DRAM serves.

        Of those that ask again, it serves where the L2 has lost what they ask for; of what these
        blocks did not run, all.
        """
        more = np.bincount(by, weights=first - lost, minlength=len(seen))
        share: npt.NDArray[np.float64] = lost + more / np.maximum(replay.sectors - replay.hits, 1)
        return np.where(replay.sectors > 0, share, 1.0)

    once = served(footprint.read)
    weights = (misses_of * by_instruction(once))[reading]
    halves = fetched_halves(
        sectors[loaded], once[loaded],
        float((shape.units[loads] * weights[: len(loads)]).sum()),
        float((shape.sectors[loads] * weights[: len(loads)]).sum()),
    )  # fmt: skip
    fetched = fetched_share(halves, footprint.overflow)
    filled = filled_bytes(samples, footprint, runs.runner.fresh)
    # The share of the scattered writes that reach DRAM one by one.
    alone = max(filled, partly_written(samples, footprint)) / max(1.0, footprint.written)
    if samples and samples[0].atomic_requests:
        alone = max(alone, float(footprint.written > gpu.l2_bytes))
    # Blocks that run together and read the same wait for DRAM with the first of them.
    waited = max(footprint.read, footprint.awaited * first_halves(halves))
    awaited = by_instruction(served(waited)).tolist()
    scattered = shape.places[reading] * weights
    stored = np.setdiff1d(np.flatnonzero(shape.places), reading)
    # An atomic reads and writes as a store does that covers a sector in part, or reads as a load.
    changed = np.maximum(scattered[len(loads) :], WRITE_ACCESSES * shape.places[atomics] * alone)
    near = _near(module, resident.counters)
    spread = constants.dram_latency * constants.latency_spread
    hit_rates = [hit / sectors if sectors else 0.0
                 for hit, sectors in zip(hits.tolist(), seen.tolist(), strict=True)]  # fmt: skip
    return MemoryTraffic(
        footprint=footprint,
        load_sectors=load_sectors * group_scale,
        hit_sectors=load_hits * group_scale,
        missed_lines=replay.missed_lines,
        reread_bytes=reread + (footprint.read + reread) * (fetched - 1),
        dram_accesses=group_scale * (
            float(scattered[: len(loads)].sum()) + float(changed.sum())
            + WRITE_ACCESSES * float(shape.places[stored].sum()) * alone
        ),
        filled_bytes=filled,
        latencies=[_latency(constants, row, *shares_of_it) for row, *shares_of_it in zip(
                       resident.counters, near, hit_rates, awaited, strict=True)],
        spreads=[(1 - own.share) * (1 - rate) * share * spread
                 for own, rate, share in zip(near, hit_rates, awaited, strict=True)],
        echoes=replay.echoes,
        flights=replay.flights,
    )  # fmt: skip


def _shows_loads(shape: Shape, loads: Sequence[int], runs: SampledRuns) -> bool:
    """Say whether the blocks of one SM load at least half as much as so many blocks do mostly."""
    here = float(shape.sectors[loads].sum()) / len(runs.group)
    each = sum(float(result.counters["sectors"][loads].sum()) for _, result in runs.samples)
    return here >= 0.5 * each / max(1, sum(len(chosen) for chosen, _ in runs.samples))


def _unseen(
    gpu: Gpu,
    module: Module,
    runs: SampledRuns,
    footprint: Footprint,
    samples: Sequence[Counts],
) -> MemoryTraffic:
    """Return what a launch moves of which the blocks of one SM show too little.

    Nothing is found in an L1, and what the launch has not read yet is in DRAM, all loads alike.
    """
    constants = constants_of(gpu)
    load_sectors = sum(counts.load_sectors for counts in samples) / len(samples)
    waited = max(footprint.read, footprint.awaited)
    share = min(1.0, (waited + footprint.between_waves) / max(32.0, 32 * load_sectors))
    rows = runs.resident.counters
    near = _near(module, rows)
    return MemoryTraffic(
        footprint=footprint,
        load_sectors=load_sectors,
        hit_sectors=0.0,
        missed_lines=1.0,
        reread_bytes=footprint.between_waves,
        dram_accesses=0.0,
        filled_bytes=filled_bytes(samples, footprint, runs.runner.fresh),
        latencies=[_latency(constants, row, own, 0.0, share)
                   for row, own in zip(rows, near, strict=True)],
        spreads=[(1 - own.share) * share * constants.dram_latency * constants.latency_spread
                 for own in near],
        echoes={},
        flights={},
    )


def constant_waits(gpu: Gpu, ran: Result) -> list[float]:
    """Return what reads of constant memory wait for further words, and for what the cache lacks."""
    constants = constants_of(gpu)
    missed = constants.missed_constants(64.0 * ran.constant_lines) * constants.constant_miss_latency
    return [
        constants.constant_latency * (words_a_read(row) - 1)
        + missed * (row["constant_words"] > 0)
        for row in ran.counters
    ]


def _latency(
    constants: TimeConstants, row: np.void, near: Near, hit_rate: float, awaited: float
) -> float:
    """Return the clocks of an average load.

    Args:
        constants: of the GPU.
        row: what the instruction did.
        near: what of it is not of global memory.
        hit_rate: of the rest, the share that the L1 has.
        awaited: the share of its misses in DRAM.
    """
    beyond = awaited * constants.dram_latency + (1 - awaited) * constants.l2_latency
    requests = float(row["global_requests"])
    lines = float(row["lines"]) / requests if requests else 1.0
    found = hit_rate * constants.l1_latency + (1 - hit_rate) * beyond + (lines - 1)
    return near.clocks + (1 - near.share) * found


def _near(module: Module, rows: npt.NDArray[np.void]) -> list[Near]:
    """Return of each instruction what it loads from elsewhere than global memory."""
    shared, local = rows["shared_requests"].astype(float), rows["local_requests"].astype(float)
    # An asynchronous copy writes to shared memory what it loads.
    shared[_of_opcode(module, "cp")] = 0.0
    of_shared = np.full(len(rows), SHARED_CLOCKS)
    of_shared[_of_opcode(module, "atom")] = SHARED_ATOMIC_CLOCKS
    asked = np.maximum(1.0, rows["global_requests"] + shared + local)
    clocks = (shared * of_shared + local * LOCAL_CLOCKS) / asked
    return list(map(Near, ((shared + local) / asked).tolist(), clocks.tolist()))


def _of_opcode(module: Module, opcode: str) -> list[int]:
    return [each.index for each in module.instructions if each.opcode == opcode]


def _loads(module: Module) -> list[int]:
    """Return the indices of the instructions that load from global memory."""
    return [
        instruction.index
        for instruction in module.instructions
        if instruction.opcode in ("ld", "ldu", "wmma", "cp")
        and "store" not in instruction.modifiers
    ]

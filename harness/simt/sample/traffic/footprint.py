"""Estimates which bytes the whole grid touches, and what DRAM moves for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ....gpus import Gpu
from ....occupancy import Occupancy
from ...counters import Counts
from ...run.records import Memory, Result

ATOMIC_BYTES = 4.0
"""What an atomic of one lane changes, mostly."""
RIM = 3.0
"""Blocks that read a sector, on average, up to which it is taken for a rim shared by neighbours."""


@dataclass(frozen=True)
class Footprint:
    """Distinct bytes that the whole grid touches."""

    read: float
    written: float
    between_waves: float
    """Bytes read again by later waves of blocks."""
    awaited: float
    """Bytes that blocks would wait for DRAM to bring if those that run together kept in step: none
    of them would find in the L2 what they share."""
    overflow: float
    """Share of what one wave of blocks touches that the L2 cannot hold, 0 to 1."""


Uses = Sequence[tuple[int, Result]]
"""Runs: how many blocks, and what came of them."""


def footprint_of(
    gpu: Gpu,
    memory: Memory,
    fresh: Uses,
    uses: Uses,
    blocks: int,
    asking: float,
    held: Occupancy,
    *,
    whole_range: bool,
) -> Footprint:
    """Estimate the footprint of the grid from all runs.

    Of each allocation: what a block touches times the blocks, but no more than the range that all
    the runs together, corners included, have touched; where the corners were too costly to run
    (`whole_range` is False), no more than the allocation.

    Args:
        gpu: the GPU that is simulated.
        memory: what is allocated.
        fresh: the runs by blocks that had not run before.
        uses: all runs.
        blocks: blocks of the grid.
        asking: as how many equal blocks these ask memory: only blocks that do make up a wave.
        held: the launch's occupancy.
        whole_range: the corners of the grid have run.
    """
    totals = {"read": 0.0, "written": 0.0}
    in_wave = between_waves = awaited = 0.0
    wave = min(asking, gpu.sms * max(1, held.blocks))
    for allocation in sorted({place for _, result in uses for place in result.uses}):
        for name in totals:
            touched, ran, first, end = 0.0, 0, 1 << 62, 0
            reading = name == "read"
            for count, result in fresh:
                ran += count
                if (use := result.uses.get(allocation)) is None:
                    continue
                touched += use.block_read_sectors if reading else use.block_written_sectors
            for _, result in uses:
                if (use := result.uses.get(allocation)) is None:
                    continue
                limits = use.read_range if reading else use.written_range
                if limits:
                    first, end = min(first, limits[0]), max(end, limits[1])
            if end <= first:
                continue
            size = float(memory.ends[allocation] - memory.starts[allocation])
            span = float(end - first) if whole_range else size
            each = touched / ran * 32.0 * blocks / asking
            whole, here = min(each * asking, span), min(each * wave, span)
            totals[name] += whole
            in_wave += here
            # What every wave reads afresh, unless the L2 keeps this allocation from wave to wave.
            # Neighbours that share a rim do so while the L2 has it.
            if not whole:
                continue
            shared = each * asking / whole
            if reading:
                awaited += each * wave * whole / here
            if name == "read" and span > gpu.l2_bytes / 2 and shared > RIM:
                between_waves += max(0.0, asking / wave * here - whole)
    return Footprint(
        totals["read"], totals["written"], between_waves, awaited,
        overflow=max(0.0, 1 - gpu.l2_bytes / in_wave) if in_wave else 0.0,
    )


def lost_reuse(overflow: float) -> float:
    """Return the share of later uses that find the L2 without their sector.

    A cache that drops the least recently used loses all of a sweep that is a few times its size.
    The shape is from two of the public launches: a quarter too much, and three quarters.
    """
    return min(1.0, math.pow(overflow / 0.65, 1.5))


class Fetched(NamedTuple):
    """What is fetched over what is asked for, 1 to 2: DRAM gives two sectors at a time."""

    ever: float
    """Where anybody asks for the other half at any time."""
    at_once: float
    """Where only the same request does."""


def fetched_halves(
    sectors: npt.NDArray[np.uint32], shares: npt.NDArray[np.float64], units: float, asked: float
) -> Fetched:
    """Return what is fetched for the sectors that the L1 missed.

    Args:
        sectors: each once, ascending.
        shares: of each, how often DRAM serves it.
        units: 64-byte units of the requests that DRAM serves.
        asked: sectors of these.
    """
    if asked <= 0 or not shares.any():
        return Fetched(1.0, 1.0)
    pairs = np.maximum.reduceat(shares, np.unique(sectors >> 1, return_index=True)[1])
    ever = float(2.0 * pairs.sum() / shares.sum())
    return Fetched(max(1.0, ever), max(1.0, min(2.0, 2.0 * units / asked)))


def first_asked(
    readers: npt.NDArray[np.float64], from_dram: float
) -> npt.NDArray[np.float64]:
    """Return how often DRAM serves one SM for each sector that it asks for first.

    Of all who read a sector one is the first: who reads what few others do waits for DRAM, however
    much else is read that everybody has asked for.

    Args:
        readers: of each sector.
        from_dram: sectors that DRAM serves in all.
    """
    if from_dram >= len(readers):
        return np.ones(len(readers))
    order = np.argsort(readers, kind="stable")
    weights = 1 / readers[order]
    # With so many served each time, what is left for the others, by their weights.
    certain = np.arange(len(order))
    rest = np.cumsum(weights[::-1])[::-1]
    each = (from_dram - certain) / rest
    few = int(np.argmax(each * weights <= 1))
    found = np.ones(len(order))
    found[few:] = max(0.0, each[few]) * weights[few:]
    shares = np.empty(len(order))
    shares[order] = found
    return shares


def first_halves(fetched: Fetched) -> float:
    """Return the share of sectors that no earlier request for the other half has fetched."""
    return min(1.0, fetched.ever / fetched.at_once)


def fetched_share(fetched: Fetched, overflow: float) -> float:
    """Return how much DRAM reads for what is missed: it fetches 64 bytes at a time.

    The other half is of use where anybody asks for it while the L2 still holds it: at any time,
    or within the request where the L2 overflows.
    """
    # The other half is asked for soon after: it is lost only where the L2 is swept many times.
    lost = min(1.0, math.pow(overflow / 0.8, 3.0))
    return float((1 - lost) * fetched.ever + lost * fetched.at_once)


def filled_bytes(samples: Sequence[Counts], footprint: Footprint, uses: Uses) -> float:
    """Return the bytes that are read because what is stored covers sectors only in part.

    Atomics read what they change, wherever they are: their sectors are counted as read.
    """
    found = [use for _, result in uses for use in result.uses.values()]
    written = sum(use.written_sectors for use in found)
    if not samples or not written:
        return 0.0
    by_atomics = sum(len(use.atomic_sectors) for use in found) / written
    stored = footprint.written * max(0.0, 1 - by_atomics)
    missing = stored - samples[0].store_bytes
    return missing if missing > 0.1 * stored else 0.0


def partly_written(samples: Sequence[Counts], footprint: Footprint) -> float:
    """Return the bytes of sectors that stores and atomics leave as they are among what they write.

    An atomic in place of a store covers as little of its sector.
    """
    if not samples:
        return 0.0
    covered = samples[0].store_bytes + ATOMIC_BYTES * samples[0].atomic_lanes
    missing = footprint.written - covered
    return missing if missing > 0.1 * footprint.written else 0.0

"""Replays traces of global accesses through modelled caches: L1 of one SM, L2 of the GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .library import core_library
from .records import Trace


@dataclass(frozen=True)
class L1Replay:
    """Sectors that went to L1, those it held, and the stream that goes on to L2."""

    sectors: NDArray[np.int64]
    """Requested, by instruction index."""
    hits: NDArray[np.int64]
    """Found in L1, by instruction index; stores and atomics never are."""
    missed_lines: float
    """Share of the lines of all load requests of which it lacked a sector; 1 without any."""
    misses: NDArray[np.uint32]
    """In order: sector | 1 << 31 for a store or an atomic."""
    missed_by: NDArray[np.uint32]
    """The instruction of each."""
    echoes: dict[int, int]
    """Loads that mostly ask for what another load of their warp asked for last: that other one."""

    flights: dict[int, tuple[int, float]]
    """Loads of which another warp has asked for a share just before, by another load: that load and
    the share. What is on its way is not there yet."""

    def made(
        self, shares: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return sectors and hits of which each instruction makes only a share.

        What is left out is asked for again what was loaded before: it would have hit.
        """
        sectors = self.sectors * shares
        return sectors, np.maximum(0.0, self.hits - (self.sectors - sectors))

    def first_misses(
        self, atomics: Sequence[int] = ()
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return the sectors that loads missed, each once, and which instruction asked first.

        Args:
            atomics: instructions that read what they change, as a load would.
        """
        loads = (self.misses < 1 << 31) | np.isin(self.missed_by, list(atomics))
        asked = self.misses[loads] & np.uint32((1 << 31) - 1)
        sectors, first = np.unique(asked, return_index=True)
        return sectors, self.missed_by[loads][first]


def _pointer(array: NDArray[np.generic]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def replay_l1(
    traces: Sequence[Trace], capacity_bytes: int, instructions: int, ways: int = 16
) -> L1Replay:
    """Interleave the warps of co-resident blocks, a request each, through one sectored LRU cache.

    Args:
        traces: Traces whose blocks all share the SM.
        capacity_bytes: L1 without its shared-memory part.
        instructions: Instructions in the module: the length of the counts returned.
        ways: Associativity.
    """
    library = core_library()
    sorted_parts, starts, ends, length = [], [], [], 0
    for trace in traces:
        keys = trace.keys()
        part = np.zeros(len(trace.records) + 1, dtype=np.uint32)
        first, last = np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
        library.simt_index_trace(
            _pointer(trace.records), ctypes.c_int64(len(trace.records)), _pointer(keys),
            ctypes.c_int64(len(keys)), _pointer(part), _pointer(first), _pointer(last),
        )  # fmt: skip
        sorted_parts.append(part)
        starts.append(first + length)
        ends.append(last + length)
        length += len(part)
    records = np.concatenate(sorted_parts or [np.zeros(1, dtype=np.uint32)])
    first = np.concatenate(starts or [np.zeros(0, dtype=np.int64)])
    last = np.concatenate(ends or [np.zeros(0, dtype=np.int64)])
    sectors = np.zeros(instructions, dtype=np.int64)
    hits = np.zeros(instructions, dtype=np.int64)
    lines = np.zeros((instructions, 2), dtype=np.int64)
    flights = np.zeros((instructions, 2), dtype=np.int64)
    misses, missed_by = np.zeros((2, max(1, len(records))), dtype=np.uint32)
    missed = library.simt_replay_l1(
        _pointer(records), ctypes.c_int64(len(first)), _pointer(first), _pointer(last),
        ctypes.c_int64(capacity_bytes), ctypes.c_int(ways), _pointer(sectors), _pointer(hits),
        _pointer(lines), _pointer(misses), _pointer(missed_by), ctypes.c_int64(len(misses)),
        ctypes.c_int64(instructions), _pointer(flights),
    )  # fmt: skip
    if missed < 0:
        raise MemoryError("no memory for the cache replay")
    echoes = _echoes(records, first, last)
    asked, lacked = lines.sum(axis=0).tolist()
    return L1Replay(sectors, hits, lacked / asked if asked else 1.0,
                    misses[:missed].copy(), missed_by[:missed].copy(), echoes,
                    {load: (int(flights[load, 1]), float(flights[load, 0] / sectors[load]))
                     for load in np.flatnonzero(flights[:, 0]).tolist()})  # fmt: skip


def _echoes(
    records: NDArray[np.uint32], first: NDArray[np.int64], last: NDArray[np.int64]
) -> dict[int, int]:
    """Return for each load the other load that its warp made of most of the same sectors before."""
    loads, before = np.zeros((2, max(1, len(records))), dtype=np.uint32)
    found = core_library().simt_trace_echoes(
        _pointer(records), ctypes.c_int64(len(first)), _pointer(first), _pointer(last),
        _pointer(loads), _pointer(before), ctypes.c_int64(len(loads)),
    )  # fmt: skip
    if found < 0:
        raise MemoryError("no memory for the cache replay")
    pairs, counts = np.unique(
        loads[:found].astype(np.uint64) << np.uint64(32) | before[:found], return_counts=True
    )
    asked = np.bincount(loads[:found])
    return {
        load: other
        for load, other, count in zip(
            (pairs >> np.uint64(32)).tolist(), (pairs & np.uint64(0xFFFFFFFF)).tolist(),
            counts.tolist(), strict=True,
        )
        if other not in (load, 0xFFFFFFFF) and 2 * count > asked[load]
    }  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """How scattered the requests of a trace are, by instruction index."""

    sectors: NDArray[np.int64]
    units: NDArray[np.int64]
    """64-byte units, summed over the requests: what DRAM fetches."""
    places: NDArray[np.int64]
    """Places 256 bytes wide, summed over the requests that go to more than four."""


def trace_shape(trace: Trace, instructions: int) -> Shape:
    """Return the shape of a trace's requests; `instructions` is how many the module has."""
    results = np.zeros((instructions, 3), dtype=np.int64)
    core_library().simt_trace_shape(
        _pointer(trace.records), ctypes.c_int64(len(trace.records)), _pointer(results)
    )
    return Shape(*results.T)

"""What goes into a run of the simulated GPU and what comes out: launch, memory, result."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ..decode.decoder import Program, Programs, decode
from ..decode.encoding import WINDOW_END
from ..decode.operands import parameter_layout
from ..ptx.records import Module

GRID_WORKSPACE_BYTES = 256
"""What the runtime keeps for cooperative groups' grid.sync()."""


class ReportKind(StrEnum):
    """What a check found; candidate.HARMLESS are no faults."""

    OUT_OF_BOUNDS = "out_of_bounds"
    MISALIGNED = "misaligned"
    RACE = "race"
    RACE_BENIGN = "race_benign"
    """A race in which the value stored was there already: it cannot change a result."""
    UNINITIALIZED_READ = "uninitialized_read"
    BARRIER_DIVERGENCE = "barrier_divergence"
    TRAP = "trap"
    ASSERT = "assert"
    SHUFFLE_INACTIVE = "shuffle_inactive"
    TIMED_OUT = "timed_out"
    BARRIER_EXITED = "barrier_exited"
    """Some threads had left the kernel when the others met at a barrier: allowed, but they wrote
    nothing."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch: what to run, how wide, with which arguments."""

    module: Module
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    parameters: Sequence[bytes]
    """Argument bytes, in the order of the kernel's parameters."""
    global_addresses: Mapping[str, int] = field(default_factory=dict)
    """Where the module's .global and .const variables lie in the arena."""
    resident_blocks: int = 1024
    """Blocks that the GPU holds at once: only these may wait for each other."""
    grid_workspace: int = 0
    """Address of GRID_WORKSPACE_BYTES of zeros for the grid's barrier; 0: no cooperative launch."""
    programs: Programs | None = None
    """Where other launches leave what they decode, `module` being a part of theirs; None: decoded
    for this one."""
    elected: frozenset[int] = frozenset()
    """Indices of the atomics for which the machine code elects a lane of each warp."""

    @functools.cached_property
    def program(self) -> Program:
        """The decoded kernel. Raises UnsupportedInstruction."""
        if self.programs is not None:
            return self.programs.of(self.kernel, self.dynamic_shared_bytes)
        return decode(self.module, self.kernel, self.dynamic_shared_bytes, self.global_addresses)

    @property
    def shared_bytes(self) -> int:
        """Static and dynamic shared memory of one block."""
        return self.program.shared_bytes

    @property
    def local_bytes(self) -> int:
        """Local memory of one thread, as PTX declares it (ptxas may spill more)."""
        return self.program.local_bytes

    @property
    def block_warps(self) -> int:
        """Warps of a block."""
        return -(-math.prod(self.block) // 32)

    @property
    def block_count(self) -> int:
        """Blocks in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def parameter_buffer(self) -> bytes:
        """Return the arguments as the kernel's parameter space holds them."""
        parameters = self.module.functions[self.kernel].parameters
        if len(parameters) != len(self.parameters):
            raise ValueError(f"{self.kernel} takes {len(parameters)} arguments")
        offsets, size = parameter_layout(self.module.functions[self.kernel])
        buffer = bytearray(size)
        for parameter, value in zip(parameters, self.parameters, strict=True):
            if len(value) != parameter.size:
                raise ValueError(f"{parameter.name} has {parameter.size} bytes, not {len(value)}")
            start = offsets[parameter.name]
            buffer[start : start + parameter.size] = value
        return bytes(buffer)


@dataclass
class Memory:
    """The device's memory: one arena of this process, and what is allocated in it.

    Device addresses are host addresses. `base` is a multiple of 128 and lies above the windows of
    shared and local memory (2**33); `size` is the part in use.
    """

    base: int
    size: int
    starts: Sequence[int]
    """First byte of every live allocation, absolute, ascending."""
    ends: Sequence[int]
    """First byte behind it. Guard bands lie between allocations."""
    initialised: NDArray[np.uint8] | None = None
    """Four bits for each four bytes of the arena (one element each): which bytes were written.
    None: reads of unwritten global memory are not looked for. In runs without checks: which bytes
    hold what they would had all blocks run; what a block leaves that read others does not."""

    def __post_init__(self) -> None:
        if self.base % 128 or self.base < WINDOW_END:
            raise ValueError(f"an arena must lie above {WINDOW_END:#x}, aligned to 128 bytes")
        if len(self.starts) != len(self.ends):
            raise ValueError("as many starts as ends are needed")
        if self.initialised is not None and len(self.initialised) * 4 < self.size:
            raise ValueError("the initialised map is smaller than the arena")

    def mark_initialised(self, address: int, count: int) -> None:
        """Note that `count` bytes from an absolute address have been written."""
        self._mark(address, count, written=True)

    def copy_initialised(self, source: int | None, target: int, count: int) -> None:
        """Note that bytes were copied, from host memory where `source` is None."""
        if self.initialised is None or count <= 0:
            return
        if source is None:
            self.mark_initialised(target, count)
            return
        _, start, known = self._bytes_of(source, count)
        copied = known[start : start + count].copy()
        words, start, known = self._bytes_of(target, count)
        known[start : start + count] = copied
        self.initialised[words] = known.reshape(-1, 4) @ np.array([1, 2, 4, 8], dtype=np.uint8)

    def _bytes_of(self, address: int, count: int) -> tuple[slice, int, NDArray[np.uint8]]:
        """Return the elements that hold some bytes, the first one's place, and a 0 or 1 a byte."""
        assert self.initialised is not None
        start = address - self.base
        words = slice(start // 4, (start + count - 1) // 4 + 1)
        bits = (self.initialised[words, None] >> np.arange(4, dtype=np.uint8)) & np.uint8(1)
        return words, start % 4, bits.astype(np.uint8).ravel()

    def mark_uninitialised(self, address: int, count: int) -> None:
        """Note that `count` bytes from an absolute address hold nothing of meaning."""
        self._mark(address, count, written=False)

    def _mark(self, address: int, count: int, written: bool) -> None:
        if self.initialised is None or count <= 0:
            return
        start, end = address - self.base, address - self.base + count
        first, last = -(-start // 4), end // 4
        if first <= last:
            self.initialised[first:last] = 15 if written else 0
        for byte in (*range(start, min(4 * first, end)), *range(max(4 * last, start), end)):
            bit = np.uint8(1 << byte % 4)
            if written:
                self.initialised[byte // 4] |= bit
            else:
                self.initialised[byte // 4] &= ~bit


@dataclass(frozen=True)
class Report:
    """The first case of one kind at one instruction, and how often it happened."""

    kind: ReportKind
    kernel: str
    instruction: str
    line: int | None
    """1-based source line."""
    called_from: int | None
    """Line of the outermost call where `line` lies in an inlined function."""
    ptx_line: int
    """1-based line of the PTX file."""
    block: int
    """Linear index in the grid."""
    thread: int
    """Linear index in the block, -1 where no single thread is meant."""
    address: int
    """Absolute for global memory, an offset for the other spaces."""
    space: str
    buffer: str
    """Where in which variable a shared address lies, or how far beside a thread's local memory, in
    words; empty for global memory, whose buffers the caller knows."""
    count: int
    detail: str
    """One clause in words."""
    other_line: int | None = None
    """Source line of the other access of a race, or of the other barrier."""
    other_block: int = -1
    other_thread: int = -1
    """Who made it, where a single one is known."""


@dataclass(frozen=True)
class AllocationUse:
    """Sectors (32 bytes) of one allocation that a run touched."""

    start: int
    end: int
    read_sectors: int
    """Distinct sectors read in the whole run."""
    written_sectors: int
    block_read_sectors: int
    """Sum over blocks of the distinct sectors that each read."""
    block_written_sectors: int
    read_range: tuple[int, int] | None
    """First byte and end of the sectors read, absolute."""
    written_range: tuple[int, int] | None
    loaded: bool
    """Something was read of it other than by an atomic."""
    looked: bool
    """There are sectors of it in `Result.looked_at_by`."""
    atomic_sectors: NDArray[np.int64]
    """Sectors that atomics touched, counted from the start of the arena."""
    atomic_turns: NDArray[np.int64]
    """Of each, how often atomics took a turn on it."""
    read_bytes: int = 0
    """Distinct bytes that blocks read and had not written, of an allocation that was followed."""


@dataclass(frozen=True)
class Trace:
    """Global accesses in the order the warps made them.

    `records` is a sequence of: place of the block in the run (from 1), warp, instruction index,
    number of sectors | 256 for a store | 512 for an atomic | 1024 past the L1, then the sectors
    (address - arena base) / 32.
    """

    records: NDArray[np.uint32]
    blocks: tuple[int, ...]
    """Linear index of the block at each place."""
    warps: int
    """Warps in each block."""
    selected: tuple[int, ...] | None = None
    """Places of the blocks that a replay should take; None: all."""

    def select(self, blocks: Sequence[int]) -> Trace:
        """Return the part of the trace that these blocks made, for a replay of some blocks."""
        places = {index: place + 1 for place, index in enumerate(self.blocks)}
        wanted = tuple(sorted(places[block] for block in blocks))
        return Trace(self.records, self.blocks, self.warps, wanted)

    def keys(self) -> NDArray[np.uint64]:
        """Return (place << 32 | warp) of every warp selected, ascending."""
        places = range(1, len(self.blocks) + 1) if self.selected is None else self.selected
        pairs = [place << 32 | warp for place in places for warp in range(self.warps)]
        return np.array(pairs, dtype=np.uint64)


@dataclass(frozen=True)
class SerialPath:
    """The longest path through a launch, from block to block, in the core's rough clocks."""

    clocks: int
    """Of the work on it; 0 where it was not asked for."""
    waits: int
    """Clocks until blocks there see what others have done."""
    own_clocks: int
    """Work of the first block alone."""
    last_clocks: int
    """Work of the block that ends last alone; 0 where its steps were not kept."""
    last: NDArray[np.uint32]
    """How often the slowest path of that block goes through each instruction."""


@dataclass(frozen=True)
class Result:
    """What a run counted and found."""

    kernel: str
    blocks: int
    """How many blocks were asked to run."""
    counters: NDArray[np.void]
    """encoding.COUNTER, one row for each instruction of the module."""
    reports: tuple[Report, ...]
    timed_out: bool
    uses: Mapping[int, AllocationUse]
    """By place of the allocation: of those that the run touched, and of no others."""
    hottest_atomic_sector: int
    """Most atomic operations of single lanes on one 32-byte sector."""
    constant_lines: int
    """Lines of 64 bytes of constant memory read at addresses that registers hold; of one thread."""
    work: NDArray[np.int64]
    """Warp instructions that each block executed, in the order they were asked for."""
    asked: NDArray[np.int64]
    """Requests of global memory of each."""
    ways: NDArray[np.uint64]
    """Of each a bit for each of 64 parts of the kernel that it came through."""
    stored: NDArray[np.uint32]
    """Bytes that each wrote of each allocation that was followed, a row a block."""
    before: NDArray[np.void]
    """What memory held before, of what the run wrote; empty where it was not to be kept."""
    looked_at_by: NDArray[np.uint32]
    """Of each sector of the arena, not 0 where a block read what it did not store itself."""
    readers: NDArray[np.uint32]
    """Of each sector of the arena, how many blocks read it."""
    first_warp_path: NDArray[np.int32]
    """Instructions executed by warp 0 of the first block, in order."""
    critical: NDArray[np.uint32]
    """How often the first block's slowest path, from barrier to barrier and from warp to warp, goes
    through each instruction; empty where a run has checks."""
    path: SerialPath
    trace: Trace | None = None

    def atomics(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sectors that atomics touched, each once, and how often they took a turn."""
        uses, empty = self.uses.values(), np.zeros(0, dtype=np.int64)
        return (np.concatenate([empty, *(use.atomic_sectors for use in uses)]),
                np.concatenate([empty, *(use.atomic_turns for use in uses)]))  # fmt: skip

"""Runs one kernel launch on the simulated GPU: the only door to the C core."""

from __future__ import annotations

import ctypes
import mmap
import secrets
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from ..decode.decoder import UnsupportedInstruction
from ..decode.encoding import COUNTER, REPORT, USE, Flag, Status
from .arena import NO_RESERVE
from .library import GLOBAL_SHADOW_BYTES, SECTOR_USE_BYTES, Machine, core_library
from .records import (
    GRID_WORKSPACE_BYTES,
    AllocationUse,
    Launch,
    Memory,
    Report,
    ReportKind,
    Result,
    SerialPath,
    Trace,
)
from .report_words import ReportWords

__all__ = [
    "GRID_WORKSPACE_BYTES", "AllocationUse", "Launch", "Memory", "Report", "ReportKind", "Result",
    "Trace", "UnsupportedInstruction", "run", "take_back", "untouched",
]  # fmt: skip

_REPORT_CAPACITY = 256
_WAYS = 64 << 16
"""Parts of a kernel of which a block says whether it came through, times 65,536."""
_PATH_CAPACITY = 1 << 22
_SLICE, _TURN = 200_000, 1 << 60
"""Instructions after which a warp gives way to the others of its block, so that warps may wait for
each other by spinning on memory; and a block to other blocks, though it does not wait."""
_FAIR_SLICE, _FAIR_TURN = 2_000, 8_000
"""The same where blocks share out their work among themselves: none may take much of it before the
others have begun. Drawn turns are parts of a block's work, and as long at most."""
_TURNS_AT_ONCE = 8
"""Blocks that take turns where none waits for another: they are neighbours (orders.py)."""
_MOST_AT_ONCE_BYTES = 256 << 20
"""Memory up to which all blocks that a GPU holds take turns where they may wait for each other."""
_BEFORE = np.dtype([("address", np.uint64), ("bytes", np.uint8, 32)])
"""`Before` of core/simt.h."""
_CHANCE = secrets.randbits(64)
"""What a program finds in places that nothing promises is drawn from it."""


def run(
    launch: Launch,
    memory: Memory,
    blocks: Sequence[int] | None = None,
    *,
    checks: bool = True,
    seed: int = 0,
    trace: bool | Collection[int] = False,
    max_instructions: int = 20_000_000_000,
    threads: int = 1,
    keep: bool = False,
    fair: bool = False,
    hop_clocks: tuple[int, int] = (0, 0),
    followed: Sequence[int] = (),
    block_limit: int = 0,
) -> Result:
    """Run blocks of a launch, one after the other in the order given.

    Args:
        launch: The kernel and its arguments.
        memory: The arena; the kernel reads and writes it in place.
        blocks: Linear block indices; None for the whole grid.
        checks: Look for races, uninitialised reads and the like. Bounds are always checked.
        seed: Order in which the warps of a block take their turns; 0 is ascending.
        trace: Keep every global access for replay_l1, or those of these blocks.
        max_instructions: Warp instructions after which the run ends as timed out.
        threads: Host threads. Only used without checks, for kernels without global atomics.
        keep: Remember what memory held, so that `take_back` can undo the run; on one thread.
        fair: Blocks that the GPU holds at once take turns, as blocks do that share out their work:
            with hop_clocks by these, else turns are drawn, no two alike.
        hop_clocks: Clocks until another block sees a store, and an atomic. With them blocks go on
            in the order of their clocks, and the result knows the launch's longest path.
        followed: Places of allocations of which it is counted what each block writes.
        block_limit: Warp instructions, about, after which a block is left as it is; 0: none.

    Raises:
        UnsupportedInstruction: the kernel contains an instruction that the core does not know.
    """
    chosen = list(range(launch.block_count)) if blocks is None else list(blocks)
    if not all(0 <= block < launch.block_count for block in chosen):
        raise ValueError(f"block indices lie between 0 and {launch.block_count - 1}")
    if checks or keep or launch.program.joins_blocks:
        threads = 1
    threads = max(1, min(threads, len(chosen)))
    bounds = [len(chosen) * part // threads for part in range(threads + 1)]
    parts = [
        _Run(launch, memory, chosen, first, last, checks, seed, trace, max_instructions, keep, fair,
             hop_clocks, followed, block_limit)
        for first, last in zip(bounds, bounds[1:], strict=False)
    ]
    if threads == 1:
        parts[0].execute()
    else:
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(part.execute) for part in parts]:
                done.result()
    for part in parts[1:]:
        parts[0].absorb(part)
    return parts[0].result(len(chosen))


def take_back(result: Result) -> None:
    """Make memory what it was before a run that was asked to `keep` it; the latest run first."""
    before = np.ascontiguousarray(result.before)
    core_library().simt_take_back(
        ctypes.c_void_p(before.ctypes.data), ctypes.c_int64(len(before))
    )


class _Run:
    """The arrays of one call of the core; kept alive until the results are copied out."""

    def __init__(
        self,
        launch: Launch,
        memory: Memory,
        blocks: Sequence[int],
        first: int,
        last: int,
        checks: bool,
        seed: int,
        trace: bool | Collection[int],
        max_instructions: int,
        keep: bool,
        fair: bool,
        hop_clocks: tuple[int, int],
        followed: Sequence[int],
        block_limit: int,
    ) -> None:
        program = launch.program
        self.launch, self.memory, self.program = launch, memory, program
        self.library = core_library()
        self.blocks = np.array(blocks[first:last], dtype=np.int64)
        self.traced = np.isin(self.blocks, [] if isinstance(trace, bool) else list(trace))
        self.starts = np.array(memory.starts, dtype=np.uint64)
        self.ends = np.array(memory.ends, dtype=np.uint64)
        self.counters = np.zeros(len(program.rows), dtype=COUNTER)
        self.reports = np.zeros(_REPORT_CAPACITY, dtype=REPORT)
        self.uses = np.zeros(max(1, len(self.starts)), dtype=USE)
        for kind in ("read", "written", "atomic"):
            self.uses[f"{kind}_first"], self.uses[f"{kind}_last"] = np.iinfo(np.int64).max, -1
        # These may be as long as the arena, but the system commits only the pages touched.
        self.sectors = untouched((memory.size // 32 + 1) * SECTOR_USE_BYTES)
        self.shadow = untouched((memory.size // 4 + 1) * GLOBAL_SHADOW_BYTES if checks else 0)
        self.work, self.asked = np.zeros((2, len(self.blocks)), dtype=np.int64)
        self.ways = np.zeros(len(self.blocks), dtype=np.uint64)
        self.stored = np.zeros((len(self.blocks), len(followed)), dtype=np.uint32)
        self.columns = np.full(max(1, len(self.starts)), -1, dtype=np.int32)
        self.columns[list(followed)] = np.arange(len(followed))
        self.before = np.zeros(0, dtype=_BEFORE)
        self.path = untouched(4 * _PATH_CAPACITY).view(np.int32)
        self.critical = np.zeros(0 if checks else len(program.rows), dtype=np.uint32)
        self.critical_last = np.zeros_like(self.critical)
        self.constants = np.frombuffer(program.constants + bytes(8), dtype=np.uint8)
        self.parameters = np.frombuffer(launch.parameter_buffer() + bytes(8), dtype=np.uint8)
        self.status = Status.FINISHED
        self.trace_records = np.zeros(0, dtype=np.uint32)
        self.rows = program.rows
        if launch.elected:
            self.rows = program.rows.copy()
            self.rows["flags"][list(launch.elected)] |= Flag.ELECTED
        machine = self.machine = Machine()
        for name, array in (
            ("code", self.rows), ("operands", program.operands),
            ("constants", self.constants), ("parameters", self.parameters),
            ("allocation_starts", self.starts), ("allocation_ends", self.ends),
            ("blocks", self.blocks), ("counters", self.counters), ("reports", self.reports),
            ("uses", self.uses), ("sectors", self.sectors), ("path", self.path),
            ("functions", program.functions), ("work", self.work),
            ("asked", self.asked), ("ways", self.ways),
        ):  # fmt: skip
            setattr(machine, name, array.ctypes.data)
        if followed:
            machine.stored, machine.followed = self.stored.ctypes.data, self.columns.ctypes.data
            machine.followed_count = len(followed)
        if self.critical.size:
            machine.critical = self.critical.ctypes.data
            machine.critical_last = self.critical_last.ctypes.data
        if not isinstance(trace, bool):
            machine.traced = self.traced.ctypes.data
        if checks:
            machine.shadow = self.shadow.ctypes.data
        if memory.initialised is not None:
            machine.initialised = memory.initialised.ctypes.data
            machine.following = int(not checks)
        machine.arena_base, machine.arena_size = memory.base, memory.size
        machine.first_block, machine.block_count = first, last - first
        machine.instruction_budget = max_instructions
        machine.path_capacity = _PATH_CAPACITY
        machine.seed, machine.chance = seed & (2**64 - 1), _CHANCE
        machine.entry = program.entry
        machine.register_bytes = program.register_bytes
        machine.constant_offset = program.constant_offset
        machine.constant_bytes = len(program.constants)
        machine.parameter_bytes = program.parameter_bytes
        machine.shared_bytes, machine.local_bytes = program.shared_bytes, program.local_bytes
        machine.allocation_count = len(self.starts)
        machine.report_capacity = _REPORT_CAPACITY
        machine.checks, machine.tracing, machine.keeping = int(checks), int(bool(trace)), int(keep)
        machine.hop_clocks, machine.atomic_hop_clocks = hop_clocks
        machine.resident_limit = launch.resident_blocks
        drawn = fair and not any(hop_clocks)
        if drawn and not program.may_wait:
            machine.resident_limit = min(launch.resident_blocks, _TURNS_AT_ONCE)
        at_once = min(machine.resident_limit, len(self.blocks))
        fair = fair and (not drawn or at_once * self._block_bytes() <= _MOST_AT_ONCE_BYTES)
        machine.slice, machine.turn = (_FAIR_SLICE, _FAIR_TURN) if fair else (_SLICE, _TURN)
        machine.drawn = int(fair and drawn)
        if block_limit:
            machine.block_limit = block_limit
            machine.slice = max(1, min(machine.slice, block_limit // launch.block_warps))
        machine.grid_workspace = launch.grid_workspace
        machine.partial_barriers = int(program.partial_barriers)
        machine.stacked, machine.function_count = int(program.stacked), len(program.functions)
        machine.instruction_count = len(program.rows)
        function = launch.module.functions[launch.kernel]
        machine.way_scale = _WAYS // max(1, function.last - function.first)
        machine.grid = (ctypes.c_uint32 * 3)(*launch.grid)
        machine.block = (ctypes.c_uint32 * 3)(*launch.block)
        machine.special_offsets = type(machine.special_offsets)(*program.special_offsets)

    def _block_bytes(self) -> int:
        """Return about how much memory a block takes that is under way, shadows included."""
        program, warps = self.program, self.launch.block_warps
        known = 8 * warps if program.partial_barriers else 36
        return warps * (
            program.register_bytes + 4096 + 64 * program.local_bytes
        ) + program.shared_bytes // 4 * (known + 36)

    def execute(self) -> None:
        """Call the core; ctypes gives up Python's lock meanwhile."""
        machine = self.machine
        self.status = Status(self.library.simt_run(ctypes.byref(machine)))
        if machine.trace:
            count = machine.trace_length
            pointer = ctypes.cast(machine.trace, ctypes.POINTER(ctypes.c_uint32))
            if count:
                self.trace_records = np.ctypeslib.as_array(pointer, (count,)).copy()
            self.library.simt_free(ctypes.c_void_p(machine.trace))
            machine.trace = None
        if machine.before:
            size = machine.before_length * _BEFORE.itemsize
            self.before = np.frombuffer(ctypes.string_at(machine.before, size), dtype=_BEFORE)
            self.library.simt_free(ctypes.c_void_p(machine.before))
            machine.before = None
        if self.status is Status.OUT_OF_MEMORY:
            raise MemoryError("the simulated GPU ran out of host memory")
        if self.status is Status.UNKNOWN_INSTRUCTION:
            instruction = self.launch.module.instructions[machine.failed_instruction]
            raise UnsupportedInstruction(
                instruction.text, instruction.line, self.launch.kernel, "operand type"
            )

    def absorb(self, other: _Run) -> None:
        """Add another part of the same launch, as if its blocks had followed this one's."""
        for name in COUNTER.names or ():
            self.counters[name] += other.counters[name]
        for index in range(len(self.starts)):
            mine, theirs = self.uses[index], other.uses[index]
            for name in ("block_read_sectors", "block_written_sectors", "loads", "looked"):
                mine[name] += theirs[name]
            first = min(theirs["read_first"], theirs["written_first"])
            last = max(theirs["read_last"], theirs["written_last"])
            if last >= 0:
                self.library.simt_merge_uses(
                    ctypes.c_void_p(self.sectors.ctypes.data),
                    ctypes.c_void_p(other.sectors.ctypes.data),
                    ctypes.c_int64(first),
                    ctypes.c_int64(last),
                    ctypes.c_void_p(self.uses.ctypes.data + index * USE.itemsize),
                )
            for name in ("read_first", "written_first"):
                mine[name] = min(mine[name], theirs[name])
            for name in ("read_last", "written_last"):
                mine[name] = max(mine[name], theirs[name])
        for name in ("work", "asked", "ways", "stored"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(other, name)]))
        if other.trace_records.size:
            self.trace_records = np.concatenate([self.trace_records, other.trace_records])
        self._absorb_reports(other)
        self.blocks = np.concatenate([self.blocks, other.blocks])
        if self.status is Status.FINISHED:
            self.status = other.status

    def _absorb_reports(self, other: _Run) -> None:
        count = self.machine.report_count
        for row in other.reports[: other.machine.report_count]:
            same = [
                index
                for index in range(count)
                if all(self.reports[index][n] == row[n] for n in ("kind", "instruction", "detail"))
            ]
            if same:
                self.reports[same[0]]["count"] += row["count"]
            elif count < _REPORT_CAPACITY:
                self.reports[count] = row
                count += 1
        self.machine.report_count = count

    def result(self, blocks: int) -> Result:
        """Copy everything out."""
        machine, launch = self.machine, self.launch
        trace = None
        if machine.tracing:
            trace = Trace(
                self.trace_records, tuple(int(b) for b in self.blocks), launch.block_warps
            )
        sectors = self.sectors.view(np.uint32).reshape(-1, SECTOR_USE_BYTES // 4)
        words = ReportWords(launch, self.starts, self.ends)
        return Result(
            kernel=launch.kernel,
            blocks=blocks,
            counters=self.counters,
            reports=tuple(words.report(row) for row in self.reports[: machine.report_count]),
            timed_out=self.status is Status.TIMED_OUT,
            uses={place: self._use(place) for place in self._touched()},
            hottest_atomic_sector=int(machine.hottest_sector),
            constant_lines=int(machine.constant_lines),
            work=self.work,
            asked=self.asked,
            ways=self.ways,
            stored=self.stored,
            before=self.before,
            looked_at_by=sectors[:, 3],
            readers=sectors[:, 4],
            first_warp_path=self.path[: machine.path_length].copy(),
            critical=self.critical,
            path=SerialPath(
                machine.path_clocks, machine.path_waits, machine.own_clocks, machine.last_clocks,
                self.critical_last,
            ),
            trace=trace,
        )

    def _touched(self) -> list[int]:
        """Return the places of the allocations that were touched: a call has hundreds of them."""
        last = [self.uses[f"{kind}_last"] for kind in ("read", "written", "atomic")]
        found: list[int] = np.flatnonzero(np.maximum.reduce(last)[: len(self.starts)] >= 0).tolist()
        return found

    def _use(self, index: int) -> AllocationUse:
        row, base = self.uses[index], self.memory.base
        atomic_sectors, atomic_turns = self._atomics(row)

        def span(first: str, last: str) -> tuple[int, int] | None:
            if row[last] < 0:
                return None
            return base + 32 * int(row[first]), base + 32 * (int(row[last]) + 1)

        return AllocationUse(
            start=int(self.starts[index]),
            end=int(self.ends[index]),
            read_sectors=int(row["read_sectors"]),
            written_sectors=int(row["written_sectors"]),
            block_read_sectors=int(row["block_read_sectors"]),
            block_written_sectors=int(row["block_written_sectors"]),
            read_range=span("read_first", "read_last"),
            written_range=span("written_first", "written_last"),
            loaded=bool(row["loads"]),
            looked=bool(row["looked"]),
            atomic_sectors=atomic_sectors,
            atomic_turns=atomic_turns,
            read_bytes=int(row["read_bytes"]),
        )

    def _atomics(self, row: np.void) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        # Kernels with global atomics run on one thread: these counts are never merged.
        first, last = int(row["atomic_first"]), int(row["atomic_last"])
        if last < 0:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        counts = self.sectors.view(np.uint32).reshape(-1, SECTOR_USE_BYTES // 4)
        turns = counts[first : last + 1, 2].astype(np.int64)
        touched = np.flatnonzero(turns)
        return first + touched, turns[touched]


def untouched(size: int) -> npt.NDArray[np.uint8]:
    """Return zeros of which the system gives only what is touched, however many are asked for."""
    if not size:
        return np.zeros(0, dtype=np.uint8)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), dtype=np.uint8)

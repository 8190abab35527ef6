"""Registers, memories and counters of a launch, as plain as they can be."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kernelblaster.harness.simt.ptx.records import (
    Function,
    Immediate,
    Instruction,
    Module,
    Negated,
    Operand,
    Register,
    Special,
    Symbol,
)  # fmt: skip

from .counting import SECTOR, global_cost, local_cost, shared_cost
from .words import TYPE_BITS, low

LANES = 32
WINDOW = {"shared": 1 << 28, "local": 3 << 30, "param": 7 << 30}
"""Where generic addresses find the other spaces: places of the reference's own choice."""
_WINDOW_SIZE = 1 << 28

Lanes = NDArray[np.uint64]


def window_of(address: int) -> tuple[str, int]:
    """Return the space of a generic address and the address within it."""
    for space, start in WINDOW.items():
        if start <= address < start + _WINDOW_SIZE:
            return space, address - start
    return "global", address


@dataclass
class Arena:
    """Device memory: a copy of the bytes from `base` on, and who touched which sector."""

    base: int
    data: bytearray
    read: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Sectors read, by place of the block in the run."""
    written: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    atomics: Counter[int] = field(default_factory=Counter)
    """Atomic operations of single lanes, by sector."""


@dataclass
class Warp:
    """32 lanes: each its own place in the program."""

    number: int
    live: NDArray[np.bool_]
    place: NDArray[np.int64]
    registers: dict[str, Lanes] = field(default_factory=dict)
    returns: list[list[int]] = field(default_factory=lambda: [[] for _ in range(LANES)])
    waiting: dict[int, int] = field(default_factory=dict)
    """Instruction at which a lane waits for a barrier, by lane."""


class Layout:
    """Where the variables of the kernel and its functions lie, each within its own space."""

    def __init__(self, module: Module, kernel: Function, addresses: Mapping[str, int]) -> None:
        self.places: dict[str, tuple[str, int]] = {}
        ends = Counter({"shared": 0, "local": 0, "param": 0})
        dynamic = []
        everything = [*module.variables.values()]
        for function in module.functions.values():
            everything += function.variables.values()
        own = {f"{kernel.name}|{p.name}" for p in kernel.parameters}
        for variable in everything:
            space = variable.space
            if space in ("global", "const"):
                self.places[variable.name] = ("global", addresses[variable.name])
            elif space == "shared" and (variable.external or not variable.size):
                dynamic.append(variable.name)
            else:
                # Parameters of functions and arguments of calls live beside local variables.
                where = "param" if variable.name in own else "local" if space == "param" else space
                start = -(-ends[where] // variable.align) * variable.align
                self.places[variable.name] = (where, start)
                ends[where] = start + variable.size
        ends["shared"] = -(-ends["shared"] // 16) * 16
        for name in dynamic:
            self.places[name] = ("shared", ends["shared"])
        self.sizes = {variable.name: variable.size for variable in everything}
        self.shared_bytes, self.local_bytes = ends["shared"], ends["local"]
        self.parameter_bytes = ends["param"]


class Block:
    """One block: its warps, its shared memory and its threads' local memories."""

    def __init__(
        self,
        place: int,
        index: int,
        grid: Sequence[int],
        shape: Sequence[int],
        layout: Layout,
        arena: Arena,
        parameters: bytes,
        dynamic_shared: int,
        counts: list[Counter[str]],
    ) -> None:
        self.place, self.index, self.grid, self.shape = place, index, grid, shape
        self.layout, self.arena, self.counts = layout, arena, counts
        self.shared = bytearray(layout.shared_bytes + dynamic_shared)
        self.dynamic_shared = dynamic_shared
        self.parameters = bytearray(parameters)
        threads = shape[0] * shape[1] * shape[2]
        self.local = [bytearray(layout.local_bytes) for _ in range(-(-threads // LANES) * LANES)]
        self.votes: list[int] = []
        self.warps = [
            Warp(n, np.arange(LANES) + n * LANES < threads, np.zeros(LANES, np.int64))
            for n in range(-(-threads // LANES))
        ]

    # -- memory

    def _bytes(self, space: str, thread: int) -> tuple[bytearray, int]:
        """Return the bytes of a space and the address of the first."""
        if space == "global":
            return self.arena.data, self.arena.base
        if space == "local":
            return self.local[thread], 0
        return (self.shared if space == "shared" else self.parameters), 0

    def load(self, space: str, thread: int, address: int, size: int) -> int:
        """Read little-endian bytes."""
        data, base = self._bytes(space, thread)
        start = address - base
        assert 0 <= start <= len(data) - size and address % size == 0, (space, hex(address), size)
        return int.from_bytes(data[start : start + size], "little")

    def store(self, space: str, thread: int, address: int, size: int, value: int) -> None:
        """Write little-endian bytes."""
        data, base = self._bytes(space, thread)
        start = address - base
        assert 0 <= start <= len(data) - size and address % size == 0, (space, hex(address), size)
        data[start : start + size] = low(value, 8 * size).to_bytes(size, "little")

    def count(
        self, index: int, space: str, lanes: list[int], addresses: list[int], size: int, kind: str
    ) -> None:
        """Count one request; `kind` is load, store or atomic."""
        counts = self.counts[index]
        if space == "global":
            counts.update(global_cost(addresses, size))
            sectors = {(a - self.arena.base) // SECTOR for a in addresses}
            if kind != "store":
                self.arena.read[self.place] |= sectors
            if kind != "load":
                self.arena.written[self.place] |= sectors
            if kind == "atomic":
                self._count_turns(counts, addresses)
        elif space == "shared":
            if kind == "atomic":  # Lanes on a bank take turns, even those on one address.
                counts["shared_wavefronts"] += max(Counter(a // 4 % 32 for a in addresses).values())
                counts["shared_requests"] += 1
                counts["shared_wavefronts_ideal"] += 1
                counts["atomic_turns"] += max(Counter(addresses).values())
                words = {a // 4 for a in addresses}
                counts["shared_wavefronts_64"] += max(Counter(a % 32 for a in words).values())
            else:
                counts.update(shared_cost(lanes, addresses, size, storing=kind == "store"))
        elif space == "local":
            counts.update(local_cost(lanes, addresses, size))
        if kind == "atomic":
            counts["atomic_lanes"] += len(lanes)

    def _count_turns(self, counts: Counter[str], addresses: list[int]) -> None:
        """Count what a request costs its sectors: lanes on one address go one after the other,
        and a sector serves four lanes at a time."""
        by_sector: dict[int, Counter[int]] = {}
        for address in addresses:
            sector = (address - self.arena.base) // SECTOR
            by_sector.setdefault(sector, Counter())[address] += 1
        for sector, on in by_sector.items():
            turns = max(on.values())
            counts["atomic_turns"] += turns
            counts["atomic_passes"] += max(turns, -(-sum(on.values()) // 4))
            self.arena.atomics[sector] += turns

    # -- registers

    def special(self, warp: Warp, name: str) -> Lanes:
        """Return a special register."""
        thread = warp.number * LANES + np.arange(LANES)
        x, y, z = self.shape
        axis = "xyz".index(name[-1]) if name[-2:] in (".x", ".y", ".z") else 0
        root = name.removesuffix(f".{'xyz'[axis]}")
        lane = [1 << i for i in range(LANES)]
        values = {
            "%tid": [thread % x, thread // x % y, thread // (x * y)][axis],
            "%ntid": self.shape[axis],
            "%nctaid": self.grid[axis],
            "%ctaid": [self.index % self.grid[0], self.index // self.grid[0] % self.grid[1],
                       self.index // self.grid[0] // self.grid[1]][axis],
            "%laneid": np.arange(LANES), "%warpid": warp.number, "%nwarpid": len(self.warps),
            "%lanemask_eq": lane, "%lanemask_lt": [b - 1 for b in lane],
            "%lanemask_le": [2 * b - 1 for b in lane],
            "%lanemask_gt": [0xFFFFFFFF - (2 * b - 1) for b in lane],
            "%lanemask_ge": [0xFFFFFFFF - (b - 1) for b in lane],
            "%dynamic_smem_size": self.dynamic_shared,
            "%total_smem_size": len(self.shared) + 1024,
        }  # fmt: skip
        return np.broadcast_to(np.asarray(values[root], dtype=np.uint64), (LANES,))

    def read(self, warp: Warp, operand: Operand, type_name: str = "b64") -> Lanes:
        """Return the bit patterns of a source operand."""
        if isinstance(operand, Register):
            return warp.registers.setdefault(operand.key, np.zeros(LANES, np.uint64))
        if isinstance(operand, Negated):
            return self.read(warp, operand.operand) ^ np.uint64(1)
        if isinstance(operand, Special):
            return self.special(warp, operand.name)
        if isinstance(operand, Symbol):
            return np.full(LANES, self.layout.places[operand.name][1], np.uint64)
        assert isinstance(operand, Immediate), operand
        return np.full(LANES, immediate(operand, type_name), np.uint64)

    def write(self, warp: Warp, operand: Operand, lanes: Sequence[int], values: list[int]) -> None:
        """Set a register in some lanes, keeping as many bits as it has; other operands swallow."""
        if not isinstance(operand, Register):
            return
        bits = TYPE_BITS[operand.type]
        register = warp.registers.get(operand.key)
        if register is None:
            register = warp.registers[operand.key] = np.zeros(LANES, np.uint64)
        register[list(lanes)] = np.array([low(v, bits) for v in values], np.uint64)


def immediate(operand: Immediate, type_name: str) -> int:
    """Return the bit pattern of a constant where a value of the type stands."""
    bits = TYPE_BITS[type_name]
    if operand.kind == "integer":
        return low(operand.bits, max(bits, 32))
    if operand.kind == "f64" and type_name == "f32":
        value = struct.unpack("<d", operand.bits.to_bytes(8, "little"))[0]
        return int.from_bytes(struct.pack("<f", value), "little")
    return operand.bits


def label_of(instruction: Instruction, function: Function) -> int:
    """Return where a branch goes."""
    label = instruction.operands[-1]
    assert isinstance(label, Symbol)
    return function.labels[label.name]

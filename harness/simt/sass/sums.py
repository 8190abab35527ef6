"""Counts of a sample in terms of machine code: instructions by pipe, shared and local traffic."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..counters import Counts
from ..ptx.loops import Loop, loops_around
from ..ptx.records import TYPE_BYTES, Function, Module, elements_of
from ..run.records import Result
from .chain import machine_chain_clocks
from .counts import block_executions
from .listing import MachineCode, MachineInstruction
from .mix import pipe_of, reads_by_register, tensor_units, width_of
from .shares import MemoryJoins

Shares = npt.NDArray[np.float64]

_SHARED = ("LDS", "STS")
_LOCAL = ("LDL", "STL")


def kernel_code(
    module: Module, function: Function, code: MachineCode | None, result: Result
) -> KernelCode | None:
    """Return a kernel's code; None where none is known, or what ran is not in it.

    A function that is called by a pointer lies elsewhere, and its work would count for nothing.
    """
    if code is None:
        return None
    rows = result.counters["warps"]
    called = [
        range(each.first, each.last) for each in module.functions.values()
        if not each.entry and rows[each.first : each.last].any()
    ]  # fmt: skip
    if called:
        found = {each.statement - 1 for block in code.blocks for each in block.instructions}
        if any(map(found.isdisjoint, called)):
            return None
    return KernelCode(module, function, code)


def elected_atomics(module: Module, code: MachineCode) -> frozenset[int]:
    """Return the indices of the atomics for which ptxas has a warp elect one of its lanes.

    Where all lanes go to one address it adds within the warp.
    """
    found = {each.statement - 1 for block in code.blocks for each in block.instructions
             if each.base in ("REDUX", "VOTEU")}  # fmt: skip
    instructions = module.instructions
    return frozenset(
        index for index in found
        if 0 <= index < len(instructions) and instructions[index].opcode in ("atom", "red")
    )  # fmt: skip


@dataclass(frozen=True)
class KernelCode:
    """A kernel as PTX and as machine code."""

    module: Module
    function: Function
    code: MachineCode

    def executions(self, result: Result, scale: float, warps: float) -> list[float]:
        """Return how many warps of the whole grid went through each machine block.

        Args:
            result: a run of some blocks.
            scale: blocks of the grid over those that ran.
            warps: warps of the whole grid.
        """
        executed, loops = self._executed(result, scale)
        inside = [
            index for each in self._functions for index in range(each.first, each.last)
        ]
        return block_executions(
            self.code,
            {index + 1: self.module.instructions[index] for index in inside},
            {index + 1: executed.get(index, 0.0) for index in inside},
            loops,
            warps,
            {index + 1 for index in self._joins.stands_for},
            {
                index + 1: float(result.counters["slow_paths"][index]) * scale
                for index in np.flatnonzero(result.counters["slow_paths"]).tolist()
            },
        )

    def shares(self, executions: Sequence[float], result: Result, scale: float) -> Shares:
        """Return what share of its traffic each PTX instruction makes, by its index.

        Args:
            executions: how often each machine block ran (`executions`).
            result, scale: as in `executions`.
        """
        executed, loops = self._executed(result, scale)
        found = np.ones(len(self.module.instructions))
        for index, share in self._joins.shares(executed, loops, executions).items():
            found[index] = share
        return found

    def _executed(
        self, result: Result, scale: float
    ) -> tuple[dict[int, float], dict[int, tuple[Loop, ...]]]:
        """Return executions by index, and the loops around each statement."""
        rows = result.counters["warps"]
        touched = np.flatnonzero(rows).tolist()
        executed = {index: float(rows[index]) * scale for index in touched}
        for statement in self._spinning:
            executed[statement - 1] = float(result.counters["atomic_turns"][statement - 1]) * scale
        loops: dict[int, tuple[Loop, ...]] = {}
        for each in self._functions:
            around = loops_around(self.module, each, executed)
            loops |= dict(enumerate(around, each.first + 1))
        return executed, loops

    @cached_property
    def _functions(self) -> list[Function]:
        """Return the kernel and the functions that it may call."""
        called = (each for each in self.module.functions.values() if not each.entry)
        return [self.function, *called]

    @cached_property
    def _joins(self) -> MemoryJoins:
        return MemoryJoins(self.module, self.function, self.code)

    @cached_property
    def _elected(self) -> frozenset[int]:
        return elected_atomics(self.module, self.code)

    @cached_property
    def _spinning(self) -> set[int]:
        """Return the statements of atomics that are loops of compare and swap."""
        return {
            each.statement
            for block in self.code.blocks
            for each in block.instructions
            if each.base == "ATOMS" and "CAS" in each.opcode
            and 0 < each.statement <= len(self.module.instructions)
            and self.module.instructions[each.statement - 1].opcode in ("atom", "red")
            and "cas" not in self.module.instructions[each.statement - 1].modifiers
        }  # fmt: skip

    def issued(self, executions: Sequence[float]) -> float:
        """Return the machine instructions that warps issue who go through its blocks so often."""
        return sum(
            count * len(block.instructions)
            for block, count in zip(self.code.blocks, executions, strict=True)
        )

    def chain(
        self,
        executions: Sequence[float],
        warps: float,
        latencies: Sequence[float],
        spreads: Sequence[float] | None = None,
        constant_waits: Sequence[float] | None = None,
        echoes: Mapping[int, int] | None = None,
        flights: Mapping[int, tuple[int, float]] | None = None,
    ) -> float:
        """Return the clocks that an average warp needs alone; the other arguments by PTX index.

        What they are is said at `machine_chain_clocks`.
        """

        def at(values: Sequence[float], statement: int) -> float:
            return values[statement - 1] if 0 < statement <= len(values) else values[0]

        def flight(statement: int) -> tuple[int, float]:
            filler, share = (flights or {}).get(statement - 1, (-1, 0.0))
            return filler + 1, share

        return machine_chain_clocks(
            self.code, executions, warps, lambda statement: at(latencies, statement),
            lambda statement: at(spreads, statement) if spreads else 0.0,
            lambda statement: at(constant_waits, statement) if constant_waits else 0.0,
            lambda statement: (echoes or {}).get(statement - 1, -1) + 1,
            flight,
        )  # fmt: skip

    def replace(
        self,
        counts: Counts,
        executions: Sequence[float],
        result: Result,
        scale: float,
        warps: float,
        shares: Shares,
    ) -> Counts:
        """Return the counts with everything that machine code knows better than PTX."""
        pipes: dict[str, float] = defaultdict(float)
        branches = spilled = spilled_stores = barriers = products = 0.0
        constant_requests = constant_words = 0.0
        returning: set[int] = set()
        widths: dict[int, int] = {}
        local: set[int] = set()
        instructions, rows = self.module.instructions, result.counters
        lines = {line: [0.0, values[1], 0.0] for line, values in counts.lines.items()}
        for block, count in zip(self.code.blocks, executions, strict=True):
            for each in block.instructions:
                pipes[pipe_of(each)] += count
                index = each.statement - 1
                known = 0 <= index < len(instructions)
                line = instructions[index].line or 0 if known else 0
                lines.setdefault(line, [0.0, 0.0, 0.0])[0] += count
                if each.base == "BRA":
                    branches += count
                elif each.base in _SHARED and known:
                    widths[index] = max(widths.get(index, 0), width_of(each))
                elif each.base in _LOCAL:
                    if known and "local" in instructions[index].modifiers:
                        local.add(index)
                    else:
                        spilled += count * 4 * width_of(each)
                        if each.base == "STL":
                            spilled_stores += count * 4 * width_of(each)
                elif reads_by_register(each) and known:
                    constant_requests += count
                    constant_words += count * words_a_read(rows[index])
                elif each.base == "BAR":
                    barriers += count
                elif pipe_of(each) == "tensor":
                    products += count * tensor_units(each)
                elif _returns_old_value(each):
                    returning.add(index)
        wavefronts, ideal = self._shared(widths, result, scale, lines, shares)
        kept = sum(float(rows["local_sectors"][index]) for index in local) * scale
        stored = sum(
            float(rows["local_sectors"][index])
            for index in local
            if instructions[index].opcode == "st"
        ) * scale  # fmt: skip
        turns, passes = self._atomics(returning, result, scale)
        return dataclasses.replace(
            counts,
            atomic_turns=turns,
            atomic_passes=passes,
            local_store_sectors=stored + spilled_stores,
            barriers_per_warp=barriers / warps if warps else 0.0,
            tensor_products=products,
            pipes=dict(pipes),
            branches=branches,
            constant_requests=constant_requests,
            constant_words=constant_words,
            shared_wavefronts=wavefronts,
            shared_wavefronts_ideal=ideal,
            local_sectors=kept + spilled,
            lines=lines,
        )

    def _atomics(
        self, returning: set[int], result: Result, scale: float
    ) -> tuple[float, float]:
        """Return turns and passes of the global atomics."""
        turns = passes = 0.0
        rows = result.counters
        for index in np.flatnonzero(rows["atomic_passes"]).tolist():
            row, elects = rows[index], index in self._elected
            here = float(row["global_requests" if elects else "atomic_turns"]) * scale
            turns += here
            cost = here if elects else float(row["atomic_passes"]) * scale
            passes += cost * (2 if index in returning else 1)
        return turns, passes

    def _shared(
        self,
        widths: dict[int, int],
        result: Result,
        scale: float,
        lines: dict[int, list[float]],
        shares: Shares,
    ) -> tuple[float, float]:
        """Return the shared wavefronts, and the least possible, by the width of each access.

        ptxas joins neighbouring scalar accesses: one of them then carries the wide access, the
        others have no machine instruction of their own.
        """
        total = least = 0.0
        rows = result.counters
        counting = {
            each.statement - 1
            for block in self.code.blocks
            for each in block.instructions
            if each.opcode.startswith("ATOMS.POPC")
        }
        for index in np.flatnonzero(rows["shared_requests"]).tolist():
            instruction = self.module.instructions[index]
            row = rows[index]
            scalar = instruction.opcode in ("ld", "st") and not {"v2", "v4"} & set(
                instruction.modifiers
            )
            inside = self.function.first <= index < self.function.last
            if scalar and inside and index not in widths:
                continue
            size = TYPE_BYTES.get(instruction.modifiers[-1], 4) if instruction.modifiers else 4
            wide = widths.get(index, 1) if scalar and size == 4 else 1
            column = {1: "shared_wavefronts", 2: "shared_wavefronts_64",
                      4: "shared_wavefronts_128"}[wide]  # fmt: skip
            if row["copy_wavefronts"]:
                column = "copy_wavefronts"
            elif index in counting:
                column = "shared_wavefronts_64"
            asked = scale * float(shares[index])
            wavefronts = float(row[column]) * asked
            if column == "shared_wavefronts" and instruction.opcode in ("ld", "st"):
                own = max(4, size * elements_of(instruction))
                wavefronts *= max(1.0, 4 * widths.get(index, 1) / own)
            if index + 1 in self._spinning:  # every turn tries again
                wavefronts *= float(row["atomic_turns"]) / float(row["shared_requests"])
            total += wavefronts
            least += min(wavefronts, float(row["shared_wavefronts_ideal"]) * asked * wide)
            lines.setdefault(instruction.line or 0, [0.0, 0.0, 0.0])[2] += wavefronts
        return total, least


def _returns_old_value(instruction: MachineInstruction) -> bool:
    """Say whether it is an atomic on global memory whose result lands in a register."""
    arguments = instruction.arguments.split(", ")
    return instruction.base in ("ATOM", "ATOMG") and arguments[1:2] != ["RZ"]


def words_a_read(row: np.void) -> float:
    """Return the distinct words of constant memory that one read of a PTX instruction names."""
    return float(row["constant_words"]) / float(row["warps"]) if row["constant_words"] else 1.0

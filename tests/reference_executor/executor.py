"""Runs a kernel launch: the warps of each block in their order, each to its next barrier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernelblaster.harness.simt.ptx.records import (
    Immediate,
    Instruction,
    Module,
    Operand,
    Pair,
    Register,
    Special,
    Symbol,
    Vector,
)  # fmt: skip

from . import arithmetic, bits, conversion, exchange, matrices, transfers
from .state import LANES, WINDOW, Arena, Block, Layout, Warp, label_of
from .words import TYPE_BITS, Lane, Words, low, words_of

LANE_RULES: dict[str, Callable[[Words], Lane]] = {
    **arithmetic.RULES, **bits.RULES, **conversion.RULES,
}  # fmt: skip
WARP_RULES: dict[str, Callable[[Block, Warp, Instruction, list[int]], None]] = {
    **transfers.RULES, **exchange.RULES, **matrices.RULES,
}  # fmt: skip
_NO_EFFECT = {"membar", "fence", "prefetch", "prefetchu", "applypriority", "nanosleep",
              "griddepcontrol", "createpolicy", "pmevent"}  # fmt: skip
_CARRY = Register("carry flag", "pred")


class Stopped(Exception):
    """A trap was executed."""


@dataclass(frozen=True)
class Outcome:
    """What a launch counted and left."""

    counts: list[Counter[str]]
    """For each instruction of the module."""
    memory: bytes
    arena: Arena
    path: list[int]
    """Instructions that the first warp of the first block executed."""
    stopped: bool


class Execution:
    """One launch on the reference."""

    def __init__(
        self,
        module: Module,
        kernel: str,
        grid: tuple[int, int, int],
        shape: tuple[int, int, int],
        dynamic_shared: int,
        parameters: bytes,
        addresses: Mapping[str, int],
        arena: Arena,
    ) -> None:
        self.module, self.kernel = module, module.functions[kernel]
        self.layout = Layout(module, self.kernel, addresses)
        self.grid, self.shape, self.dynamic_shared = grid, shape, dynamic_shared
        self.parameters, self.arena = parameters, arena
        self.counts: list[Counter[str]] = [Counter() for _ in module.instructions]
        self.path: list[int] = []
        self.rules: dict[int, Lane] = {}

    def run(self, budget: int = 10_000_000) -> Outcome:
        """Run every block; `budget` is the most instructions that warps may execute in all."""
        self.budget = budget
        stopped = False
        try:
            for index in range(self.grid[0] * self.grid[1] * self.grid[2]):
                self._block(Block(
                    index + 1, index, self.grid, self.shape, self.layout, self.arena,
                    self.parameters, self.dynamic_shared, self.counts,
                ))  # fmt: skip
        except Stopped:
            stopped = True
        return Outcome(self.counts, bytes(self.arena.data), self.arena, self.path, stopped)

    def _block(self, block: Block) -> None:
        for warp in block.warps:
            warp.place[:] = self.kernel.first
        while any(warp.live.any() for warp in block.warps):
            for warp in block.warps:
                while self._step(block, warp):
                    pass
            self._release(block)

    # -- one warp

    def _step(self, block: Block, warp: Warp) -> bool:
        """Execute one instruction for the lanes that are furthest behind; False when none can."""
        free = [n for n in range(LANES) if warp.live[n] and n not in warp.waiting]
        if not free:
            return False
        self.budget -= 1
        assert self.budget > 0, "the program does not end"
        places = warp.place.tolist()
        index = min(places[n] for n in free)
        lanes = [n for n in free if places[n] == index]
        instruction = self.module.instructions[index]
        active = lanes
        if instruction.guard is not None:
            guard = block.read(warp, instruction.guard).tolist()
            active = [n for n in lanes if bool(guard[n]) != instruction.guard_negated]
        self.counts[index].update(warps=1, active_threads=len(lanes), threads=len(active))
        if block.place == 1 and warp.number == 0:
            self.path.append(index)
        warp.place[lanes] = index + 1
        if active:
            self._execute(block, warp, instruction, active, len(active) < len(lanes))
        return True

    def _execute(
        self, block: Block, warp: Warp, instruction: Instruction, lanes: list[int], parted: bool
    ) -> None:
        opcode = instruction.opcode
        if opcode in ("bra", "brx"):
            self._branch(block, warp, instruction, lanes, parted)
        elif opcode in ("exit", "ret", "call"):
            self._call_or_return(block, warp, instruction, lanes)
        elif opcode in ("bar", "barrier"):
            if "warp" not in instruction.modifiers:
                warp.waiting.update(dict.fromkeys(lanes, instruction.index))
        elif opcode in ("trap", "brkpt"):
            raise Stopped
        elif opcode in WARP_RULES:
            WARP_RULES[opcode](block, warp, instruction, lanes)
        elif opcode in ("mov", "cvta"):
            self._move(block, warp, instruction, lanes)
        elif opcode in LANE_RULES:
            self._lanewise(block, warp, instruction, lanes)
        else:
            assert opcode in _NO_EFFECT, f"the reference does not know {instruction.text}"

    def _branch(
        self, block: Block, warp: Warp, instruction: Instruction, lanes: list[int], parted: bool
    ) -> None:
        function = self.module.functions[instruction.function]
        if instruction.opcode == "bra":
            warp.place[lanes] = label_of(instruction, function)
            self.counts[instruction.index]["divergent"] += parted
            return
        index, table = instruction.operands
        assert isinstance(table, Symbol)
        labels = function.branch_tables[table.name]
        chosen = block.read(warp, index).tolist()
        for lane in lanes:
            warp.place[lane] = function.labels[labels[chosen[lane]]]

    def _call_or_return(
        self, block: Block, warp: Warp, instruction: Instruction, lanes: list[int]
    ) -> None:
        function = self.module.functions[instruction.function]
        call = instruction.call
        if instruction.opcode == "exit" or (instruction.opcode == "ret" and function.entry):
            warp.live[lanes] = False
        elif call is None:
            for lane in lanes:
                back = warp.returns[lane].pop()
                made = self.module.instructions[back - 1].call
                assert made is not None
                for target, result in zip(made.results, function.results, strict=True):
                    self._copy(block, warp, lane, f"{function.name}|{result.name}", target)
                warp.place[lane] = back
        elif call.target not in ("vprintf",):
            callee = self.module.functions[call.target]
            for lane in lanes:
                warp.returns[lane].append(instruction.index + 1)
                for given, parameter in zip(call.arguments, callee.parameters, strict=True):
                    self._copy(block, warp, lane, given, f"{callee.name}|{parameter.name}")
            warp.place[lanes] = callee.first

    def _copy(self, block: Block, warp: Warp, lane: int, source: str, target: str) -> None:
        memory = block.local[LANES * warp.number + lane]
        start, end = self.layout.places[source][1], self.layout.places[target][1]
        size = self.layout.sizes[source]
        memory[end : end + size] = memory[start : start + size]

    def _move(self, block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
        words = words_of(instruction)
        target, source = instruction.operands
        if words.opcode == "cvta":
            space = words.one_of(*(s for m in words.modifiers for s in (m,) if m != "to"))
            window = WINDOW.get(space.split("::")[0], 0) * (-1 if words.has("to") else 1)
            values = block.read(warp, source, "b64").tolist()
            block.write(warp, target, lanes, [values[n] + window for n in lanes])
        elif isinstance(target, Vector):
            values = block.read(warp, source, words.type).tolist()
            part = words.bits // len(target.items)
            for place, item in enumerate(target.items):
                parts = [low(values[n] >> place * part, part) for n in lanes]
                block.write(warp, item, lanes, parts)
        elif isinstance(source, Vector):
            part = words.bits // len(source.items)
            columns = [block.read(warp, item, f"b{part}").tolist() for item in source.items]
            packed = [
                sum(low(column[n], part) << i * part for i, column in enumerate(columns))
                for n in lanes
            ]
            block.write(warp, target, lanes, packed)
        else:
            if isinstance(source, Special) and source.name.startswith(("%clock", "%globaltimer")):
                values = [10_000_000 - self.budget] * LANES
            else:
                values = block.read(warp, source, words.type).tolist()
            block.write(warp, target, lanes, [values[n] for n in lanes])

    def _lanewise(
        self, block: Block, warp: Warp, instruction: Instruction, lanes: list[int]
    ) -> None:
        words = words_of(instruction)
        rule = self.rules.get(instruction.index)
        if rule is None:
            rule = self.rules[instruction.index] = LANE_RULES[words.opcode](words)
        target, *sources = instruction.operands
        expected = "b64" if words.has("wide") else words.type
        if words.opcode in ("shl", "shr", "bfe", "bfi"):
            expected = f"b{max(32, TYPE_BITS[expected])}"
        columns = [block.read(warp, o, expected).tolist() for o in sources]
        if words.opcode in ("addc", "subc", "madc"):
            columns.append(block.read(warp, _CARRY).tolist())
        is_odd = arithmetic.SLOW_PATHS.get(words.opcode)
        if is_odd and words.has("rn") and words.type == "f32":
            odd = any(is_odd(*(column[n] for column in columns)) for n in lanes)
            self.counts[instruction.index]["slow_paths"] += odd
        rows = [rule(*(column[n] for column in columns)) for n in lanes]
        results: list[Operand] = [target]
        if isinstance(target, Pair):
            results = [target.first, target.second]
        elif words.has("cc"):
            results.append(_CARRY)
        tuples = [row if isinstance(row, tuple) else (row,) for row in rows]
        for place, result in enumerate(results):
            block.write(warp, result, lanes, [int(row[place]) for row in tuples])

    # -- barriers

    def _release(self, block: Block) -> None:
        """Let the threads of every barrier go at which all that it waits for have arrived."""
        arrived: dict[int, list[tuple[Warp, int]]] = {}
        for warp in block.warps:
            for lane, index in warp.waiting.items():
                number, _ = self._barrier(self.module.instructions[index])
                arrived.setdefault(number, []).append((warp, lane))
        alive = sum(int(warp.live.sum()) for warp in block.warps)
        for threads in arrived.values():
            places = [warp.waiting[lane] for warp, lane in threads]
            _, wanted = self._barrier(self.module.instructions[places[0]])
            if len(threads) < (wanted or alive):
                continue
            self._reduce(block, threads)
            for warp, lane in threads:
                del warp.waiting[lane]
            return
        assert not arrived, "threads wait at barriers that nobody else will reach"

    def _barrier(self, instruction: Instruction) -> tuple[int, int]:
        """Return the number of a barrier and how many threads it waits for, 0 for all."""
        operands: Sequence[Operand] = instruction.operands
        if "red" in instruction.modifiers:
            operands = operands[1:-1]
        numbers = [o.bits for o in operands if isinstance(o, Immediate)]
        return (numbers + [0])[0], (numbers + [0, 0])[1]

    def _reduce(self, block: Block, threads: list[tuple[Warp, int]]) -> None:
        votes = []
        for warp, lane in threads:
            instruction = self.module.instructions[warp.waiting[lane]]
            if "red" in instruction.modifiers:
                source = instruction.operands[-1]
                votes.append(bool(block.read(warp, source, "pred")[lane]))
        for warp, lane in threads:
            instruction = self.module.instructions[warp.waiting[lane]]
            if "red" in instruction.modifiers:
                kind = words_of(instruction).one_of("popc", "and", "or")
                value = {"popc": sum(votes), "and": all(votes), "or": any(votes)}[kind]
                block.write(warp, instruction.operands[0], [lane], [int(value)])

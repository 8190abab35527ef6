"""How much of the traffic that PTX asks for the machine code makes: ptxas lifts, joins and drops.

A load or store of PTX counts as executed unless the machine code surely does it less often:

- all its machine instructions stand outside of a machine loop that is its PTX loop: it was lifted,
  and runs as often as their blocks, but once for each entry of that loop at least;
- it has no machine instruction, and another access that has one covers its address: in the same
  basic block or in one that dominates it, then it was joined with that one or dropped as repeated;
- the same, but neither comes before the other (both sides of a branch): then the one that has an
  instruction stands for both, as often as the last block before both runs.

Nothing is concluded from predicated instructions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..ptx.flow import BasicBlocks
from ..ptx.loops import Loop
from ..ptx.records import (
    TYPE_BYTES,
    Address,
    Function,
    Immediate,
    Instruction,
    Module,
    Register,
    Symbol,
    Vector,
)
from .listing import MachineCode, MachineInstruction
from .loops import lifted_out_of, machine_loops
from .mix import width_of

_STANDS = {"ld": ("LDG", "LD", "LDS", "LDL"), "ldu": ("LDG", "LD"),
           "st": ("STG", "ST", "STS", "STL")}  # fmt: skip
_STEPS = 64
"""Additions that are followed from an address back to where it comes from."""


@dataclass(frozen=True)
class _Place:
    """What an access touches: bytes [first, end) from a root that has one value."""

    kind: str
    root: str
    first: int
    end: int


@dataclass(frozen=True)
class MemoryJoins:
    """Loads and stores of one kernel, in PTX and in machine code."""

    module: Module
    function: Function
    code: MachineCode

    @cached_property
    def standing(self) -> dict[int, list[tuple[int, MachineInstruction]]]:
        """The machine instructions of each load and store by its index, with their blocks."""
        found: dict[int, list[tuple[int, MachineInstruction]]] = defaultdict(list)
        for place, block in enumerate(self.code.blocks):
            for each in block.instructions:
                index = each.statement - 1
                if not self.function.first <= index < self.function.last or block.function:
                    continue
                if each.base in _STANDS.get(self.module.instructions[index].opcode, ()):
                    found[index].append((place, each))
        return dict(found)

    @cached_property
    def absent(self) -> list[int]:
        """Indices of the loads and stores that no machine instruction names."""
        return [
            index
            for index in range(self.function.first, self.function.last)
            if _moves_memory(self.module.instructions[index]) and index not in self.standing
        ]

    @cached_property
    def dropped(self) -> set[int]:
        """Absent accesses that one which always comes before, or with them, makes needless."""
        return {
            index
            for index, others in self._covering.items()
            if any(self._blocks.dominates(other, index) for other in others)
        }

    @cached_property
    def stands_for(self) -> dict[int, list[int]]:
        """By the access that has an instruction: those on other sides of a branch that lack one."""
        found: dict[int, list[int]] = defaultdict(list)
        for index, others in self._covering.items():
            if index not in self.dropped:
                found[others[0]].append(index)
        return dict(found)

    def shares(
        self,
        executed: Mapping[int, float],
        loops: Mapping[int, Sequence[Loop]],
        executions: Sequence[float],
    ) -> dict[int, float]:
        """Return the share of each load's and store's traffic that is made, where it is not 1.

        Args:
            executed: executions of each PTX instruction by its index, by warps.
            loops: the loops around each statement (index + 1), the innermost first.
            executions: how often each machine block ran.
        """
        found = dict.fromkeys(self.dropped, 0.0)
        machine = machine_loops(self.code, loops)
        for index, copies in self.standing.items():
            others = self.stands_for.get(index, [])
            asked = executed.get(index, 0.0) + sum(executed.get(other, 0.0) for other in others)
            if asked <= 0 or any(each.predicate for _, each in copies):
                continue
            blocks = [self.code.blocks[place] for place, _ in copies]
            around = loops.get(index + 1, ())
            left = [lifted_out_of(block, around, machine) for block in blocks]
            entries = [loop.entries for loop in left if loop is not None]
            if len(entries) == len(copies):
                made = sum(executions[place] for place, _ in copies)
                made = min(max(made, min(entries)), sum(entries))
            elif others:
                made = executed.get(self._blocks.before_all((index, *others)), 0.0)
            else:
                continue
            for each in (index, *others):
                found[each] = min(1.0, made / asked)
        return {index: share for index, share in found.items() if share < 1}

    @cached_property
    def _blocks(self) -> BasicBlocks:
        return BasicBlocks(self.module, self.function)

    @cached_property
    def _covering(self) -> dict[int, list[int]]:
        """By absent access: those that have an instruction and touch all that it touches."""
        if not self.absent:
            return {}
        definitions = _definitions(self.module, self.function)
        by_root: dict[tuple[str, str], list[tuple[int, _Place]]] = defaultdict(list)
        for index, copies in self.standing.items():
            instruction = self.module.instructions[index]
            place = _place_of(instruction, definitions)
            if place is not None:
                wide = place.first + 4 * max(width_of(each) for _, each in copies)
                whole = _Place(place.kind, place.root, place.first, max(place.end, wide))
                by_root[place.kind, place.root].append((index, whole))
        found: dict[int, list[int]] = {}
        for index in self.absent:
            place = _place_of(self.module.instructions[index], definitions)
            if place is None:
                continue
            others = [
                other
                for other, each in by_root.get((place.kind, place.root), ())
                if each.first <= place.first and place.end <= each.end
            ]
            if others:
                found[index] = others
        return found


def _moves_memory(instruction: Instruction) -> bool:
    spaces = {word.split("::")[0] for word in instruction.modifiers}
    return instruction.opcode in _STANDS and not spaces & {"param", "const"}


def _definitions(module: Module, function: Function) -> dict[str, Instruction | None]:
    """Return what sets each register; None for those set more than once."""
    found: dict[str, Instruction | None] = {}
    for index in range(function.first, function.last):
        instruction = module.instructions[index]
        if not instruction.operands:
            continue
        target = instruction.operands[0]
        items = target.items if isinstance(target, Vector) else (target,)
        for item in items:
            if isinstance(item, Register):
                found[item.key] = None if item.key in found else instruction
    return found


def _place_of(
    instruction: Instruction, definitions: Mapping[str, Instruction | None]
) -> _Place | None:
    """Return what an access touches, from the register or variable that its address starts at."""
    address = next((each for each in instruction.operands if isinstance(each, Address)), None)
    if address is None or not instruction.modifiers:
        return None
    spaces = [word.split("::")[0] for word in instruction.modifiers]
    space = next((word for word in spaces if word in ("global", "shared", "local")), "")
    words = next((int(word[1:]) for word in spaces if word in ("v2", "v4", "v8")), 1)
    size = words * TYPE_BYTES.get(instruction.modifiers[-1], 4)
    base, first = address.base, address.offset
    for _ in range(_STEPS):
        made = definitions.get(base.key) if isinstance(base, Register) else None
        if made is None or made.guard is not None:
            break
        if made.opcode == "add" and len(made.operands) == 3:
            other, step = made.operands[1:]
            if not isinstance(other, Register) or not isinstance(step, Immediate):
                break
            base, first = other, first + _signed(step.bits, made.modifiers[-1])
        elif made.opcode == "mov" and isinstance(made.operands[1], Register | Symbol):
            base = made.operands[1]
        else:
            break
    if isinstance(base, Register):
        root = base.key
    elif isinstance(base, Symbol):
        root = base.name
    else:
        return None
    return _Place(f"{instruction.opcode} {space}", root, first, first + size)


def _signed(bits: int, kind: str) -> int:
    size = 64 if kind.endswith("64") else 32
    bits &= (1 << size) - 1
    return bits - (1 << size) if bits >> (size - 1) else bits

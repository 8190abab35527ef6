"""Basic blocks of a PTX function, and which of them every way to another goes through."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from .records import Function, Instruction, Module, Symbol


class BasicBlocks:
    """The basic blocks of one function: who dominates whom."""

    def __init__(self, module: Module, function: Function) -> None:
        self._starts = _starts(module, function)
        self._dominators = _dominators(_predecessors(module, function, self._starts))

    def dominates(self, first: int, second: int) -> bool:
        """Say whether the block of one instruction lies on every way to another's, by indices.

        True as well where both are in one block, in whatever order.
        """
        return bool(self._dominators[self._block(second)] >> self._block(first) & 1)

    def before_all(self, indices: Sequence[int]) -> int:
        """Return the first instruction of the last block that every way to any of these takes."""
        common = -1
        for index in indices:
            common &= self._dominators[self._block(index)]
        blocks = [block for block in range(len(self._starts)) if common >> block & 1]
        return self._starts[max(blocks, key=lambda block: self._dominators[block].bit_count())]

    def _block(self, index: int) -> int:
        return bisect_right(self._starts, index) - 1


def _leads_to(instruction: Instruction, function: Function) -> list[int]:
    if instruction.opcode == "bra":
        return [function.labels[operand.name] for operand in instruction.operands
                if isinstance(operand, Symbol) and operand.name in function.labels]  # fmt: skip
    if instruction.opcode == "brx":
        return [function.labels[label] for labels in function.branch_tables.values()
                for label in labels]  # fmt: skip
    return []


def _starts(module: Module, function: Function) -> list[int]:
    starts = {function.first}
    for index in range(function.first, function.last):
        instruction = module.instructions[index]
        starts.update(_leads_to(instruction, function))
        if instruction.opcode in ("bra", "brx", "ret", "exit", "trap"):
            starts.add(index + 1)
    return sorted(start for start in starts if start < function.last)


def _predecessors(module: Module, function: Function, starts: list[int]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in starts]
    for block, start in enumerate(starts):
        end = starts[block + 1] if block + 1 < len(starts) else function.last
        last = module.instructions[end - 1]
        for to in _leads_to(last, function):
            if to < function.last:
                found[bisect_right(starts, to) - 1].append(block)
        ends = last.opcode in ("bra", "brx", "ret", "exit", "trap") and last.guard is None
        if not ends and block + 1 < len(starts) and end > start:
            found[block + 1].append(block)
    return found


def _dominators(predecessors: list[list[int]]) -> list[int]:
    """Return the dominators of each block as a set of bits; nothing reaches some: all blocks."""
    everything = (1 << len(predecessors)) - 1
    found = [1, *([everything] * (len(predecessors) - 1))]
    changed = True
    while changed:
        changed = False
        for block in range(1, len(predecessors)):
            common = everything
            for before in predecessors[block]:
                common &= found[before]
            common |= 1 << block
            if common != found[block]:
                found[block], changed = common, True
    return found

"""The loops around each PTX instruction, and how often each is entered, from executed counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .records import Function, Instruction, Module, Symbol


@dataclass(frozen=True)
class Loop:
    """A loop of PTX: module.instructions[first : last + 1], the last being the branch back."""

    first: int
    last: int
    entries: float
    """How often it is come to from outside."""
    back: frozenset[int]
    """Every branch back to its first instruction."""


def loops_around(
    module: Module, function: Function, executed: Mapping[int, float]
) -> list[tuple[Loop, ...]]:
    """Return, for each instruction of a function, the loops around it, the innermost first.

    Loops are found as branches back to a label; LLVM lays their bodies out whole.

    Args:
        module, function: the parsed PTX.
        executed: executions by index in the module (by warps).
    """
    first, last = function.first, function.last
    targets = {index: name for name, index in function.labels.items()}
    branches = [
        (at, function.labels[label])
        for at in range(first, last)
        for label in _labels_of(module.instructions[at], function)
    ]
    back: dict[int, set[int]] = {}
    for at, to in branches:
        if to <= at:
            back.setdefault(to, set()).add(at)
    loops = []
    for head, sources in back.items():
        end = max(sources)
        entries = _entries(module, branches, targets, head, end, first, executed)
        loops.append(Loop(head, end, entries, frozenset(sources)))
    found: list[tuple[Loop, ...]] = [()] * (last - first)
    for loop in sorted(loops, key=lambda loop: loop.first - loop.last):
        for index in range(loop.first, loop.last + 1):
            found[index - first] = (loop, *found[index - first])
    return found


def _labels_of(instruction: Instruction, function: Function) -> list[str]:
    if instruction.opcode == "bra":
        return [operand.name for operand in instruction.operands
                if isinstance(operand, Symbol) and operand.name in function.labels]  # fmt: skip
    return []


def _entries(
    module: Module,
    branches: list[tuple[int, int]],
    targets: Mapping[int, str],
    head: int,
    end: int,
    first: int,
    executed: Mapping[int, float],
) -> float:
    """Return how often the loop [head, end] is come to from outside."""
    whole = executed.get(head, 0.0)
    # A loop that is left at its end: what runs on is what came in, and it ends once an entry.
    back = module.instructions[end]
    entered = 0.0
    if head > first and _falls_through(module.instructions[head - 1]):
        before = module.instructions[head - 1]
        count = executed.get(head - 1, 0.0)
        if before.opcode == "bra":  # conditional: part of it went elsewhere
            elsewhere = [to for at, to in branches if at == head - 1]
            sources = [at for at, to in branches if to == elsewhere[0]] if elsewhere else []
            fallen_into = bool(elsewhere) and _falls_through(
                module.instructions[elsewhere[0] - 1]
            )
            if len(sources) == 1 and not fallen_into:
                count -= executed.get(elsewhere[0], 0.0)
        entered += count
    for at, to in branches:
        if to == head and not head <= at <= end:
            entered += executed.get(at, 0.0)
    if back.guard is None and entered <= 0:
        entered = whole - executed.get(end, 0.0)
    return min(max(entered, 0.0), whole)


def _falls_through(instruction: Instruction) -> bool:
    ends = instruction.opcode in ("bra", "ret", "exit", "trap", "brx") and instruction.guard is None
    return not ends

"""How often the innermost loop around each PTX instruction is entered, from executed counts."""

from __future__ import annotations

from collections.abc import Mapping

from .ptx_records import Function, Instruction, Module, Symbol


def loop_entries(module: Module, function: Function, executed: Mapping[int, float]) -> list[float]:
    """Return, for each instruction of a function, the entries of its innermost loop.

    0 stands for an instruction in no loop, or in one that was never entered. Loops are found as
    branches back to a label; LLVM lays their bodies out whole.

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
    spans: dict[int, int] = {}
    for at, to in branches:
        if to <= at:
            spans[to] = max(spans.get(to, at), at)
    entries = {
        (head, end): _entries(module, branches, targets, head, end, first, executed)
        for head, end in spans.items()
    }
    found = [0.0] * (last - first)
    for span in sorted(entries, key=lambda span: span[0] - span[1]):
        for index in range(span[0], span[1] + 1):
            found[index - first] = entries[span]
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

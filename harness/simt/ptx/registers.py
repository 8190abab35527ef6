"""Which registers instructions name, and whose results are read at all."""

from __future__ import annotations

from .records import Address, Module, Negated, Operand, Pair, Register, Vector

NO_RESULT = (
    "st", "red", "bra", "brx", "ret", "exit", "bar", "barrier", "membar", "fence", "cp", "trap",
)  # fmt: skip
"""Instructions whose first operand is no result."""


def registers_of(operand: Operand) -> tuple[str, ...]:
    """Return the keys of the registers that an operand names."""
    if isinstance(operand, Register):
        return (operand.key,)
    if isinstance(operand, Address):
        return registers_of(operand.base)
    if isinstance(operand, Vector):
        return tuple(name for item in operand.items for name in registers_of(item))
    if isinstance(operand, Negated):
        return registers_of(operand.operand)
    if isinstance(operand, Pair):
        return registers_of(operand.first) + registers_of(operand.second)
    return ()


def atomics_read(module: Module) -> frozenset[int]:
    """Return the indices of the atomics whose results some instruction of a module reads."""
    atomics = [each for each in module.instructions if each.opcode == "atom"]
    read: set[str] = set()
    for instruction in module.instructions if atomics else ():
        has_result = instruction.opcode not in NO_RESULT
        for operand in instruction.operands[has_result:]:
            read.update(registers_of(operand))
        if instruction.guard is not None:
            read.add(instruction.guard.key)
    return frozenset(
        each.index for each in atomics if not read.isdisjoint(registers_of(each.operands[0]))
    )

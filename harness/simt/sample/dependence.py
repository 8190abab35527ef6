"""Says whether blocks of a launch may know of each other: then a few of them stand for nothing.

A block that takes a number from a counter, or looks at what another leaves in memory, can tell
which blocks have run before it, and so whether all of them do.
"""

from __future__ import annotations

import numpy as np

from ..decode.encoding import Op, Space
from ..ptx.records import Module
from ..run.core import Launch
from .warp_chain import NO_RESULT, registers_of

UNEVEN = "its blocks differ so much in their work that a few of them do not tell its time"


class TooUneven(Exception):
    """The blocks of a launch differ so much in their work that a few do not tell the time."""


class Unaffordable(Exception):
    """All blocks of a launch would have to run, which is too much work; the message says why."""


def shared_counter(launch: Launch) -> str:
    """Return what to say where a kernel uses what an atomic on global memory returns, or ""."""
    rows = launch.program.rows
    atomics = (rows["opcode"] == Op.ATOMIC) & (rows["space"] != Space.SHARED)
    read = _read_registers(launch.module) if atomics.any() else frozenset()
    for index in np.flatnonzero(atomics).tolist():
        found = launch.module.instructions[index]
        if found.opcode == "atom" and not read.isdisjoint(registers_of(found.operands[0])):
            at = f", line {found.line}" if found.line else ""
            return (
                "its blocks take turns at a counter or a lock in memory, or join their results by "
                f"one ({'.'.join((found.opcode, *found.modifiers))}{at}): what one does hangs on "
                "the others"
            )
    return ""


def _read_registers(module: Module) -> frozenset[str]:
    """Return the registers that any instruction of a module reads."""
    read: set[str] = set()
    for instruction in module.instructions:
        has_result = instruction.opcode not in NO_RESULT
        for operand in instruction.operands[has_result:]:
            read.update(registers_of(operand))
        if instruction.guard is not None:
            read.add(instruction.guard.key)
    return frozenset(read)

"""Turns one kernel and what it calls into the flat rows that the C core executes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import decode_arithmetic, decode_memory
from .decode_arithmetic import Rule
from .decode_operands import (
    CONSTANT_TAG,
    Frame,
    Row,
    UnsupportedInstruction,
    new_row,
)
from .encoding import ROW, ROW_FIELDS, SPECIAL_REGISTERS, Op, Space, Vote
from .ptx_records import Immediate, Instruction, Module, Negated, Symbol

__all__ = ["Program", "UnsupportedInstruction", "decode"]

_RULES: dict[str, Rule] = {**decode_arithmetic.RULES, **decode_memory.RULES}
_NO_REGISTER = ("guard", "destination", "destination2", "source0", "source1", "source2", "source3")
_REGISTER_FIELDS = ("source0", "source1", "source2", "source3")
_HINTS = {"prefetch", "prefetchu", "applypriority", "nanosleep", "griddepcontrol"}
"""Instructions that change when things happen, never what is computed."""


@dataclass(frozen=True)
class Program:
    """A decoded kernel, independent of grid, arguments and data."""

    rows: NDArray[np.void]
    """encoding.ROW, one for each instruction of the module; unreachable ones are traps."""
    operands: NDArray[np.int32]
    constants: bytes
    constant_offset: int
    register_bytes: int
    """Register file of one warp, constants included."""
    special_offsets: tuple[int, ...]
    entry: int
    parameter_offsets: Mapping[str, int]
    parameter_bytes: int
    shared_bytes: int
    """Static and dynamic."""
    local_bytes: int
    """For each thread: local variables and arguments of functions."""
    global_atomics: bool


def decode(
    module: Module, kernel: str, dynamic_shared_bytes: int, global_addresses: Mapping[str, int]
) -> Program:
    """Decode a kernel and every function it may call.

    Raises:
        KeyError: the module has no such kernel.
        UnsupportedInstruction: an instruction, named with its source line, is not known.
    """
    function = module.functions[kernel]
    frame = Frame(module, function, dynamic_shared_bytes, global_addresses)
    decoded: dict[int, Row] = {}
    for reached in frame.functions:
        for instruction in frame.code(reached):
            decoded[instruction.index] = _decode_one(frame, instruction)
    constant_offset = -(-frame.register_bytes // 64) * 64
    rows = _table(len(module.instructions), decoded, constant_offset)
    operands = np.array(frame.operands or [0], dtype=np.int32)
    tagged = operands >= CONSTANT_TAG
    operands[tagged] += constant_offset - CONSTANT_TAG
    atomic = rows["opcode"] == Op.ATOMIC
    return Program(
        rows=rows,
        operands=operands,
        constants=bytes(frame.constants),
        constant_offset=constant_offset,
        register_bytes=constant_offset + len(frame.constants),
        special_offsets=tuple(frame.special.get(name, -1) for name in SPECIAL_REGISTERS),
        entry=function.first,
        parameter_offsets=frame.parameter_offsets,
        parameter_bytes=frame.parameter_bytes,
        shared_bytes=frame.shared_bytes,
        local_bytes=frame.local_bytes,
        global_atomics=bool(np.any(atomic & (rows["space"] != Space.SHARED))),
    )


def _table(count: int, decoded: Mapping[int, Row], constant_offset: int) -> NDArray[np.void]:
    """Write the decoded rows into one array and put constants behind the registers."""
    rows = np.zeros(count, dtype=ROW)
    rows["opcode"] = Op.TRAP
    for name in _NO_REGISTER:
        rows[name] = -1
    for name in (*ROW_FIELDS, "immediate"):
        indices = [index for index, row in decoded.items() if name in row]
        if indices:
            rows[name][indices] = [decoded[index][name] for index in indices]
    # Binary rules read every source they know: an absent one must still be a valid register.
    arithmetic = (rows["opcode"] >= Op.MOVE) & (rows["opcode"] < Op.LOAD)
    for name in ("source1", "source2"):
        absent = arithmetic & (rows[name] < 0)
        rows[name][absent] = np.maximum(rows["source0"][absent], 0)
    for name in _REGISTER_FIELDS:
        column = rows[name]
        tagged = column >= CONSTANT_TAG
        column[tagged] += constant_offset - CONSTANT_TAG
    return rows


def _decode_one(frame: Frame, instruction: Instruction) -> Row:
    rule = _RULES.get(instruction.opcode, _control)
    try:
        row = rule(frame, instruction)
    except (ValueError, IndexError, KeyError, StopIteration) as problem:
        # A form no rule expects, for example fewer operands: refused, as an unknown opcode is.
        raise frame.refuse(instruction, str(problem)) from problem
    if instruction.guard is not None:
        row["guard"], _ = frame.register(instruction.guard)
        row["guard_negated"] = int(instruction.guard_negated)
    return row


def _control(frame: Frame, instruction: Instruction) -> Row:
    """Decode branches, calls, barriers, fences and hints."""
    opcode, modifiers = instruction.opcode, set(instruction.modifiers)
    function = frame.module.functions[instruction.function]
    if opcode == "bra" and modifiers <= {"uni"}:
        label = instruction.operands[-1]
        if not isinstance(label, Symbol):
            raise frame.refuse(instruction)
        return {**new_row(Op.BRANCH), "target": function.labels[label.name]}
    if opcode == "brx" and modifiers <= {"idx", "uni"}:
        return _branch_table(frame, instruction)
    if opcode == "exit" or (opcode == "ret" and function.entry):
        return new_row(Op.EXIT)
    if opcode == "ret":
        return {**new_row(Op.RETURN), "source0": frame.return_slots[function.name]}
    if opcode == "call":
        return _call(frame, instruction)
    if opcode in ("bar", "barrier"):
        return _barrier(frame, instruction)
    if opcode in ("membar", "fence") and not any("proxy" in m or "::" in m for m in modifiers):
        return new_row(Op.FENCE)
    if opcode in ("trap", "brkpt"):
        return new_row(Op.TRAP)
    if opcode in _HINTS and not any("tensormap" in m for m in modifiers):
        return new_row(Op.NOP)
    raise frame.refuse(instruction)


def _branch_table(frame: Frame, instruction: Instruction) -> Row:
    """Decode brx.idx, the jump of a large switch: each lane takes the label of its index."""
    function = frame.module.functions[instruction.function]
    index, table = instruction.operands
    if not isinstance(table, Symbol):
        raise frame.refuse(instruction)
    targets = [function.labels[label] for label in function.branch_tables[table.name]]
    row = new_row(Op.BRANCH_TABLE)
    row["source0"], _ = frame.source(instruction, index, "u32")
    row["operands"], row["count"] = len(frame.operands), len(targets)
    frame.operands += targets
    return row


def _call(frame: Frame, instruction: Instruction) -> Row:
    call = instruction.call
    target = call.target if call else ""
    if target == "vprintf":
        return new_row(Op.NOP)
    if target == "__assertfail":
        return new_row(Op.ASSERT)
    if target not in frame.module.functions:
        raise frame.refuse(instruction, "a call through a pointer or of an external function")
    callee = frame.module.functions[target]
    return {
        **new_row(Op.CALL),
        "target": callee.first,
        "source0": frame.return_slots[target],
    }


def _barrier(frame: Frame, instruction: Instruction) -> Row:
    """Decode the barrier of the whole block, plain or reducing, and the barrier of a warp."""
    modifiers = list(instruction.modifiers)
    known = {"warp", "sync", "cta", "aligned", "red", "popc", "and", "or", "u32", "pred"}
    if not known.issuperset(modifiers):
        raise frame.refuse(instruction)
    if "warp" in modifiers:
        return new_row(Op.NOP)  # lanes meet again at the lowest pc anyhow
    operands = list(instruction.operands)
    reducing = "red" in modifiers
    row = new_row(Op.BARRIER_REDUCE if reducing else Op.BARRIER)
    if reducing:
        modes = {"popc": Vote.POPC, "and": Vote.ALL, "or": Vote.ANY}
        row["flags"] = next(modes[m] for m in modifiers if m in modes)
        row["destination"], _ = frame.destination(instruction, operands.pop(0))
        value = operands.pop()
        if isinstance(value, Negated):
            row["count"], value = 1, value.operand
        row["source0"], _ = frame.source(instruction, value, "pred")
    if len(operands) > 1 or not (isinstance(operands[0], Immediate) and operands[0].bits == 0):
        raise frame.refuse(instruction, "named barriers and barriers of part of a block")
    return row

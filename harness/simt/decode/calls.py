"""Decoding rules for calls: by fixed places, or with frames for recursion and function pointers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..ptx.records import Instruction
from .encoding import FUNCTION, FUNCTION_FIELDS, Op
from .operands import Frame, Row, new_row


def call(frame: Frame, instruction: Instruction) -> Row:
    """Decode call."""
    made = instruction.call
    assert made is not None
    target = made.target
    if target == "vprintf":
        return new_row(Op.NOP)
    if target == "__assertfail":
        return new_row(Op.ASSERT)
    if target and target not in frame.module.functions:
        raise frame.refuse(instruction, f"the function {target} is not in the module")
    if not frame.stacked:
        callee = frame.module.functions[target]
        return {**new_row(Op.CALL), "target": callee.first, "source0": frame.return_slots[target]}
    row = new_row(Op.CALL_FRAME)
    row["target"] = -1
    if target:
        row["target"] = [function.name for function in frame.functions].index(target)
    else:
        assert made.pointer is not None
        row["source0"], row["source_width"] = frame.source(instruction, made.pointer, "u64")
    row["operands"] = len(frame.operands)
    frame.operands += [len(made.arguments), len(made.results)]
    variables = frame.module.functions[instruction.function].variables
    for name in (*made.arguments, *made.results):
        if name not in variables:
            raise frame.refuse(instruction, "an argument that is no variable")
        frame.operands += [frame.local_offsets[name], variables[name].size]
    return row


def give_back(frame: Frame, instruction: Instruction) -> Row:
    """Decode ret of a device function."""
    if frame.stacked:
        return new_row(Op.RETURN_FRAME)
    return {**new_row(Op.RETURN), "source0": frame.return_slots[instruction.function]}


def function_table(frame: Frame) -> NDArray[np.void]:
    """Return encoding.FUNCTION of every function that may be called, in frame order."""
    table = np.zeros(max(1, len(frame.functions)), dtype=FUNCTION)
    if not frame.stacked:
        return table
    for place, function in enumerate(frame.functions):
        registers = frame.registers_of(function.name)
        values: dict[str, int] = {
            "entry": function.first, "frame_bytes": frame.frame_bytes[function.name],
            "address": frame.function_address(function.name),
        }  # fmt: skip
        values["registers"], values["register_count"] = len(frame.operands), len(registers)
        for offset, width in registers:
            frame.operands += [offset, width]
        own = () if function.entry else (function.parameters, function.results)
        for name, declared in zip(("parameter", "result"), own, strict=False):
            values[f"{name}s"], values[f"{name}_count"] = len(frame.operands), len(declared)
            for variable in declared:
                place_of = frame.local_offsets[f"{function.name}|{variable.name}"]
                frame.operands += [place_of, variable.size]
        for field in FUNCTION_FIELDS:
            table[field][place] = values.get(field, 0)
    return table

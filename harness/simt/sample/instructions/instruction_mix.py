"""What ptxas makes of a PTX instruction: the pipe it runs on and how many machine instructions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...ptx.records import Instruction

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
_SPECIAL_FUNCTIONS = ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh")
_FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")


def machine_instructions(instruction: Instruction) -> Mapping[str, float]:
    """Return the expected number of SASS instructions by pipe for one execution by a warp.

    Pipes: fma, fma_heavy (integer multiply-add), alu, xu, fp64, fp16, lsu, tensor, control.
    Moves, address-space casts and parameter loads cost nothing: ptxas folds them into operands.
    The expansions of division and square root are those of sm_80 to sm_90 SASS, counted by eye.
    """
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in ("mov", "cvta", "pragma", "isspacep") or "param" in modifiers:
        return {}
    if opcode in ("ld", "ldu", "st", "atom", "red", "cp", "shfl", "ldmatrix", "stmatrix"):
        if opcode == "cp" and ("commit_group" in modifiers or "wait_group" in modifiers):
            return {"control": 1}
        return {"control": 1} if "const" in modifiers else {"lsu": 1}
    if opcode in ("wmma", "mma"):
        return _tensor(modifiers)
    if opcode in ("bra", "ret", "exit", "call", "bar", "barrier", "membar", "fence", "trap",
                  "nanosleep", "brkpt"):  # fmt: skip
        return {"control": 1}
    kind = _type(modifiers)
    if opcode in ("div", "rem"):
        return _division(kind, modifiers)
    if opcode in _SPECIAL_FUNCTIONS:
        return _special_function(opcode, kind, modifiers)
    if opcode == "cvt":
        return _conversion(modifiers)
    if kind == "f64":
        return {"fp64": 1}
    if kind in ("f16", "f16x2", "bf16", "bf16x2"):
        return {"alu": 1} if opcode in ("min", "max", "setp", "selp") else {"fp16": 1}
    if kind == "f32" and opcode in ("add", "sub", "mul", "fma", "mad"):
        return {"fma": 1}
    wide = kind in ("s64", "u64", "b64")
    if opcode in ("mul", "mad"):
        if wide:
            return {"fma_heavy": 4}
        return {"fma_heavy": 1}
    if opcode in ("popc", "clz", "brev"):
        return {"xu": 1}
    return {"alu": 2 if wide else 1}


def tensor_operations(instruction: Instruction) -> float:
    """Return the multiply-adds of one tensor-core instruction of a warp; 0 for any other."""
    if instruction.opcode not in ("mma", "wmma") or "load" in instruction.modifiers:
        return 0.0
    if "store" in instruction.modifiers:
        return 0.0
    for modifier in instruction.modifiers:
        shape = _SHAPE.match(modifier)
        if shape:
            return float(int(shape[1]) * int(shape[2]) * int(shape[3]))
    return 0.0


def _type(modifiers: tuple[str, ...]) -> str:
    return modifiers[-1] if modifiers else ""


def _tensor(modifiers: tuple[str, ...]) -> Mapping[str, float]:
    if "load" in modifiers or "store" in modifiers:
        return {"lsu": 4}  # a 16x16 fragment is moved by four instructions
    shape = next((found for found in map(_SHAPE.match, modifiers) if found), None)
    if shape is None:
        return {"tensor": 1}
    operations = int(shape[1]) * int(shape[2]) * int(shape[3])
    return {"tensor": max(1.0, operations / (16 * 8 * 16))}


def _division(kind: str, modifiers: tuple[str, ...]) -> Mapping[str, float]:
    if kind == "f64":
        return {"fp64": 9, "xu": 1, "alu": 3, "control": 2}
    if kind == "f32":
        if "approx" in modifiers:
            return {"xu": 1, "fma": 1}
        if "full" in modifiers:
            return {"xu": 1, "fma": 3, "alu": 3}
        return {"xu": 1, "fma": 7, "alu": 2, "control": 2}
    if kind in ("s64", "u64"):
        return {"fma_heavy": 24, "alu": 30, "xu": 2, "control": 4}
    return {"fma_heavy": 5, "alu": 10, "xu": 2}


def _special_function(opcode: str, kind: str, modifiers: tuple[str, ...]) -> Mapping[str, float]:
    if kind == "f64":
        return {"fp64": 8, "xu": 1, "alu": 3, "control": 2}
    if "approx" in modifiers:
        if "ftz" in modifiers or opcode in ("sin", "cos", "tanh"):
            return {"xu": 1}
        # Without .ftz ptxas scales denormal operands: a compare, a select, two products.
        return {"xu": 1, "fma": 2, "alu": 1}
    return {"xu": 1, "fma": 4, "alu": 2, "control": 2}


def _conversion(modifiers: tuple[str, ...]) -> Mapping[str, float]:
    kinds = [word for word in modifiers if word[:1] in "usfb" and word[-1:].isdigit()]
    to, source = (kinds[0], kinds[1]) if len(kinds) >= 2 else ("", "")
    floats = (to in _FLOATS, source in _FLOATS)
    if "f64" in (to, source):
        return {"xu": 2}
    if floats == (True, True):
        return {"alu": 1}
    if any(floats):
        return {"xu": 1}
    return {"alu": 1}

"""Decoding rules for tensor-core instructions and the moves of their fragments."""

from __future__ import annotations

import re

from ..ptx.records import Instruction
from .arithmetic import Rule, check_modifiers
from .encoding import Op
from .memory import SPACES, space_of
from .operands import TYPE_OF, Frame, Row, items_of, new_row

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_FP8 = {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}
_COUNTS = {"x1": 1, "x2": 2, "x4": 4}
_FLOAT_SHAPES = {("f16", 8), ("f16", 16), ("bf16", 8), ("bf16", 16), ("tf32", 4), ("tf32", 8)}
_INTEGER_SHAPES = {"m16n8k16", "m16n8k32", "m8n8k16"}
_DOUBLE_SHAPES = {"m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"}
_WMMA_SHAPES = {
    "f16": {"m16n16k16", "m8n32k16", "m32n8k16"}, "bf16": {"m16n16k16", "m8n32k16", "m32n8k16"},
    "s8": {"m16n16k16", "m8n32k16", "m32n8k16"}, "u8": {"m16n16k16", "m8n32k16", "m32n8k16"},
    "tf32": {"m16n16k8"}, "f64": {"m8n8k4"},
}  # fmt: skip


def load_matrix(frame: Frame, instruction: Instruction) -> Row:
    """Decode ldmatrix of 8x8 tiles of 16-bit elements."""
    return _tiles(frame, instruction, Op.LOAD_MATRIX)


def store_matrix(frame: Frame, instruction: Instruction) -> Row:
    """Decode stmatrix of 8x8 tiles of 16-bit elements."""
    return _tiles(frame, instruction, Op.STORE_MATRIX)


def _tiles(frame: Frame, instruction: Instruction, op: Op) -> Row:
    allowed = {"sync", "aligned", "m8n8", "trans", "shared", "shared::cta", *_COUNTS}
    check_modifiers(frame, instruction, allowed)
    row = new_row(op)
    row["count"] = next(_COUNTS[m] for m in instruction.modifiers if m in _COUNTS)
    row["flags"] = int("trans" in instruction.modifiers)
    row["space"] = space_of(instruction)
    loading = op is Op.LOAD_MATRIX
    result, memory = instruction.operands if loading else instruction.operands[::-1]
    row["operands"] = frame.vector(instruction, items_of(result), "b32", writes=loading)
    frame.address(instruction, memory, row)
    return row


def move_matrix(frame: Frame, instruction: Instruction) -> Row:
    """Decode movmatrix: the transpose of a tile that lies in registers."""
    check_modifiers(frame, instruction, {"sync", "aligned", "m8n8", "trans"})
    row = new_row(Op.MOVE_MATRIX)
    row["destination"], _ = frame.destination(instruction, instruction.operands[0])
    row["source0"], _ = frame.source(instruction, instruction.operands[1], "b32")
    return row


def mma(frame: Frame, instruction: Instruction) -> Row:
    """Decode mma.sync of f16, bf16, tf32, 8-bit integers and f64."""
    modifiers = instruction.modifiers
    if _FP8 & set(modifiers):
        raise frame.needs_hardware(instruction, "fp8 products")
    if "sp" in modifiers or "sp::ordered_metadata" in modifiers:
        raise frame.refuse(instruction, "sparse products")
    shape = next((m for m in modifiers if _SHAPE.fullmatch(m)), "m0n0k0")
    allowed = {"sync", "aligned", "row", "col", "satfinite", shape}
    types = check_modifiers(frame, instruction, allowed)
    layouts = [m for m in modifiers if m in ("row", "col")]
    if len(types) != 4 or layouts != ["row", "col"]:
        raise frame.refuse(instruction, "tensor-core shape or types")
    if types[0] == "s32" and shape in _INTEGER_SHAPES:
        return _mma_integer(frame, instruction, types, shape)
    if set(types) == {"f64"} and shape in _DOUBLE_SHAPES:
        return _mma_other(frame, instruction, Op.MMA_DOUBLE, shape, ("b64", "b64"))
    rows, columns, inner = extents(shape)
    if (
        (rows, columns) != (16, 8)
        or types[1] != types[2]
        or (types[1], inner) not in _FLOAT_SHAPES
        or types[0] != types[3]
        or types[0] not in (("f16", "f32") if types[1] == "f16" else ("f32",))
        or "satfinite" in modifiers
    ):
        raise frame.refuse(instruction, "tensor-core shape or types")
    row = new_row(Op.MMA)
    row["type"], row["source_type"], row["count"] = TYPE_OF[types[0]], TYPE_OF[types[1]], inner
    result, left, right, sums = (items_of(operand) for operand in instruction.operands)
    row["operands"] = frame.vector(instruction, result, "b32", writes=True)
    for items, type_name in ((left, "b32"), (right, "b32"), (sums, types[3])):
        frame.vector(instruction, items, "f32" if type_name == "f32" else "b32", writes=False)
    return row


def _mma_integer(frame: Frame, instruction: Instruction, types: list[str], shape: str) -> Row:
    if not {types[1], types[2]} <= {"s8", "u8"}:
        raise frame.refuse(instruction, "tensor-core shape or types")
    row = _mma_other(frame, instruction, Op.MMA_INTEGER, shape, ("b32", "b32"))
    row["flags"] = int(types[1] == "s8") | 2 * int(types[2] == "s8")
    row["flags"] |= 4 * int("satfinite" in instruction.modifiers)
    return row


def _mma_other(
    frame: Frame, instruction: Instruction, op: Op, shape: str, kinds: tuple[str, str]
) -> Row:
    row = new_row(op)
    rows, columns, inner = extents(shape)
    row["immediate"] = rows << 16 | columns << 8 | inner
    result, left, right, sums = (items_of(operand) for operand in instruction.operands)
    row["count"], row["source1"], row["source2"] = len(result), len(left), len(right)
    each = 4 if op is Op.MMA_INTEGER else 1  # elements of A and B in a register
    wanted = (rows * columns // 32, rows * inner // 32 // each, inner * columns // 32 // each)
    if (len(result), len(left), len(right)) != wanted or len(sums) != len(result):
        raise frame.refuse(instruction, "this number of operands")
    row["operands"] = frame.vector(instruction, result, kinds[0], writes=True)
    for items in (left, right, sums):
        frame.vector(instruction, items, kinds[1], writes=False)
    return row


def extents(shape: str) -> tuple[int, int, int]:
    """Return M, N and K of a shape such as m16n8k16."""
    matched = _SHAPE.fullmatch(shape)
    assert matched
    rows, columns, inner = (int(part) for part in matched.groups())
    return rows, columns, inner


def wmma(frame: Frame, instruction: Instruction) -> Row:
    """Decode wmma of f16, bf16, tf32, 8-bit integers and f64."""
    modifiers = instruction.modifiers
    shape = next((m for m in modifiers if _SHAPE.fullmatch(m)), "m0n0k0")
    allowed = {"load", "store", "mma", "sync", "aligned", "a", "b", "c", "d", "row", "col",
               "satfinite", "rn", *SPACES, shape}  # fmt: skip
    types = check_modifiers(frame, instruction, allowed)
    if not any(shape in shapes for shapes in _WMMA_SHAPES.values()) or "satfinite" in modifiers:
        raise frame.refuse(instruction, "tensor-core shape")
    rows, columns, inner = extents(shape)
    if modifiers[0] == "mma":
        return _wmma_mma(frame, instruction, types, shape)
    if types[-1] not in (*_WMMA_SHAPES, "f32", "s32"):
        raise frame.refuse(instruction, "tensor-core types")
    parts = {"a": (rows, inner), "b": (inner, columns)}.get(modifiers[1], (rows, columns))
    loading = modifiers[0] == "load"
    row = new_row(Op.WMMA_LOAD if loading else Op.WMMA_STORE)
    row["type"], row["target"] = TYPE_OF[types[-1]], parts[0] << 8 | parts[1]
    # Bit 0: row-major; above: A, B, or sums.
    which = {"a": 0, "b": 1}.get(modifiers[1], 2)
    row["flags"], row["space"] = int("row" in modifiers) | which << 1, space_of(instruction)
    first, second, *stride = instruction.operands
    fragment, memory = (first, second) if loading else (second, first)
    items = items_of(fragment)
    row["count"] = len(items)
    row["operands"] = frame.vector(instruction, items, _register(types[-1]), writes=loading)
    frame.address(instruction, memory, row)
    if stride:
        row["source1"], _ = frame.source(instruction, stride[0], "u32")
    return row


def _register(type_name: str) -> str:
    return "b64" if type_name == "f64" else "b32"


def _wmma_mma(frame: Frame, instruction: Instruction, types: list[str], shape: str) -> Row:
    if len(types) == 2:
        types = [types[0], "f16", "f16", types[1]]
    result_type, left_type, right_type, sum_type = types
    if left_type != right_type or shape not in _WMMA_SHAPES.get(left_type, set()):
        raise frame.refuse(instruction, "tensor-core types")
    rows, columns, inner = extents(shape)
    row = new_row(Op.WMMA_MMA)
    row["type"], row["source_type"] = TYPE_OF[result_type], TYPE_OF[left_type]
    row["target"], row["immediate"] = TYPE_OF[sum_type], rows << 16 | columns << 8 | inner
    result, left, right, sums = (items_of(operand) for operand in instruction.operands)
    row["count"], row["source1"], row["source2"] = len(result), len(left), len(right)
    kind = _register(left_type)
    row["operands"] = frame.vector(instruction, result, kind, writes=True)
    for items in (left, right, sums):
        frame.vector(instruction, items, kind, writes=False)
    return row


RULES: dict[str, Rule] = {
    "ldmatrix": load_matrix,
    "stmatrix": store_matrix,
    "movmatrix": move_matrix,
    "mma": mma,
    "wmma": wmma,
}

"""Decoding rules for arithmetic that few kernels use: carries, packed integers, odd roundings."""

from __future__ import annotations

from ..ptx.records import Immediate, Instruction, Pair, Register, Sink
from .arithmetic import ROUNDING, Rule, check_modifiers, plain, set_operands, types_of
from .encoding import Carry, Flag, Op, Packed, Property, Rounded, Rounding, Space
from .operands import TYPE_OF, Frame, Row, new_row

_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_PACKED_TYPES = ("u16x2", "s16x2")
_ROUNDED = {
    "add": Rounded.ADD, "sub": Rounded.SUB, "mul": Rounded.MUL, "fma": Rounded.FMA,
    "mad": Rounded.FMA, "div": Rounded.DIV, "sqrt": Rounded.SQRT, "rcp": Rounded.RCP,
}  # fmt: skip
_PACKED = {
    "add": Packed.ADD, "sub": Packed.SUB, "min": Packed.MIN, "max": Packed.MAX,
    "absdiff": Packed.DIFFERENCE, "avrg": Packed.AVERAGE,
}  # fmt: skip


def arithmetic(frame: Frame, instruction: Instruction) -> Row:
    """Decode the rare forms of add, sub, mul, mad, fma, min, max, div, sqrt and rcp."""
    given, opcode = set(instruction.modifiers), instruction.opcode
    types = types_of(instruction)
    if "cc" in given or opcode in ("addc", "subc", "madc"):
        return _carry(frame, instruction)
    if types and types[-1] in _PACKED_TYPES:
        return _packed_pair(frame, instruction, types[-1])
    if "xorsign" in given:
        return _xor_sign(frame, instruction)
    if types and types[-1] == "s32" and "sat" in given and opcode in ("add", "sub"):
        check_modifiers(frame, instruction, {"sat"})
        row = new_row(Op.ADD_SATURATED)
        row["type"], row["flags"] = TYPE_OF["s32"], int(opcode == "sub")
        return set_operands(frame, instruction, row, "s32", 2)
    directed = given & {"rz", "rm", "rp"}
    known = types[-1:] == ["f32"] and opcode in ("add", "sub", "mul", "fma", "mad")
    if opcode in _ROUNDED and types and not known:
        wide = types[-1] in ("f32", "f64") and directed
        if wide or (types[-1] in _HALVES and "sat" in given and not directed):
            return _rounded(frame, instruction, types[-1], directed)
    return plain(frame, instruction)


def _rounded(
    frame: Frame, instruction: Instruction, type_name: str, directed: set[str]
) -> Row:
    check_modifiers(frame, instruction, {"rn", "rz", "rm", "rp", "sat", "ftz"})
    row = new_row(Op.ROUNDED_ANY)
    row["type"] = TYPE_OF[type_name]
    row["flags"] = _ROUNDED[instruction.opcode] << 8
    row["flags"] |= ROUNDING[directed.pop()] if directed else Rounding.NEAREST
    if "sat" in instruction.modifiers:
        row["flags"] |= Flag.SATURATE
    if "ftz" in instruction.modifiers:
        row["flags"] |= Flag.FLUSH
    set_operands(frame, instruction, row, type_name)
    for name in ("source1", "source2"):
        row.setdefault(name, row["source0"])
    return row


def _carry(frame: Frame, instruction: Instruction) -> Row:
    """Decode add{c}.cc, sub{c}.cc and mad{c}.{lo,hi}.cc."""
    (type_name,) = check_modifiers(frame, instruction, {"cc", "lo", "hi"})
    opcode, given = instruction.opcode, instruction.modifiers
    row = new_row(Op.CARRY)
    row["type"], row["flags"] = TYPE_OF[type_name], 0
    if opcode.endswith("c"):
        row["flags"] |= Carry.IN
    if "cc" in given:
        row["flags"] |= Carry.OUT
    if opcode.startswith("sub"):
        row["flags"] |= Carry.SUBTRACT
    if opcode.startswith("mad"):
        row["flags"] |= Carry.PRODUCT | (Carry.HIGH if "hi" in given else 0)
    set_operands(frame, instruction, row, type_name, 3 if opcode.startswith("mad") else 2)
    row["destination2"] = frame.carry
    return row


def _packed_pair(frame: Frame, instruction: Instruction, type_name: str) -> Row:
    check_modifiers(frame, instruction, {"relu"})
    row = new_row(Op.PACKED)
    signed = type_name.startswith("s")
    row["count"] = 16
    row["flags"] = _PACKED[instruction.opcode] << 8
    if signed:
        row["flags"] |= Packed.LEFT_SIGNED | Packed.RIGHT_SIGNED | Packed.RESULT_SIGNED
    if "relu" in instruction.modifiers:
        row["flags"] |= Flag.RELU
    return set_operands(frame, instruction, row, "b32", 2)


def video(frame: Frame, instruction: Instruction) -> Row:
    """Decode vadd2, vabsdiff4 and the like: packed bytes or halfwords of whole registers."""
    types = check_modifiers(frame, instruction, {"sat", "add"})
    if len(types) != 3 or len(instruction.operands) != 4:
        raise frame.refuse(instruction, "a form with masks or selectors")
    row = new_row(Op.PACKED)
    row["count"] = 8 if instruction.opcode.endswith("4") else 16
    row["flags"] = _PACKED[instruction.opcode[1:-1]] << 8
    for sign, name in zip(
        (Packed.RESULT_SIGNED, Packed.LEFT_SIGNED, Packed.RIGHT_SIGNED), types, strict=True
    ):
        if name == "s32":
            row["flags"] |= sign
    if "sat" in instruction.modifiers:
        row["flags"] |= Packed.SATURATE
    if "add" in instruction.modifiers:
        row["flags"] |= Packed.ACCUMULATE
    return set_operands(frame, instruction, row, "b32", 3)


def _xor_sign(frame: Frame, instruction: Instruction) -> Row:
    types = check_modifiers(frame, instruction, {"xorsign", "abs", "ftz", "NaN"})
    if types != ["f32"]:
        raise frame.refuse(instruction, "this type")
    row = new_row(Op.EXTREME_XOR_SIGN)
    row["type"], row["flags"] = TYPE_OF["f32"], int(instruction.opcode == "max")
    if "NaN" in instruction.modifiers:
        row["flags"] |= Flag.PROPAGATE_NAN
    if "ftz" in instruction.modifiers:
        row["flags"] |= Flag.FLUSH
    return set_operands(frame, instruction, row, "f32", 2)


def _simple(op: Op, modifiers: set[str], count: int) -> Rule:
    """Return the rule of an operation whose operands have the instruction's first type."""

    def rule(frame: Frame, instruction: Instruction) -> Row:
        types = check_modifiers(frame, instruction, modifiers)
        row = new_row(op)
        row["type"] = TYPE_OF[types[0]]
        row["flags"] = int("clamp" in instruction.modifiers)
        return set_operands(frame, instruction, row, types[0], count)

    return rule


def dp2a(frame: Frame, instruction: Instruction) -> Row:
    """Decode dp2a: two products of a halfword and a byte."""
    types = check_modifiers(frame, instruction, {"lo", "hi"})
    row = new_row(Op.DP2A)
    row["type"] = TYPE_OF["u32"]
    row["flags"] = int(types[0] == "s32") | 2 * int(types[1] == "s32")
    row["flags"] |= 4 * int("hi" in instruction.modifiers)
    return set_operands(frame, instruction, row, "b32", 3)


def select_sign(frame: Frame, instruction: Instruction) -> Row:
    """Decode slct: one of two values by the sign of a third."""
    type_name, sign_type = check_modifiers(frame, instruction, {"ftz"})
    row = new_row(Op.SELECT_SIGN)
    row["type"], row["flags"] = TYPE_OF[type_name], int(sign_type == "f32")
    if "ftz" in instruction.modifiers:
        row["flags"] |= Flag.FLUSH
    set_operands(frame, instruction, row, type_name, 3)
    row["source2"], _ = frame.source(instruction, instruction.operands[3], sign_type)
    return row


def test_property(frame: Frame, instruction: Instruction) -> Row:
    """Decode testp."""
    names = {item.name.lower(): item for item in Property}
    (type_name,) = check_modifiers(frame, instruction, set(names))
    row = new_row(Op.TEST_PROPERTY)
    row["type"], row["flags"] = TYPE_OF[type_name], names[instruction.modifiers[0]]
    return set_operands(frame, instruction, row, type_name, 1)


def in_window(frame: Frame, instruction: Instruction) -> Row:
    """Decode isspacep: does a generic address lie in a state space?"""
    spaces = {"global": Space.GLOBAL, "const": Space.GLOBAL, "shared": Space.SHARED,
              "shared::cta": Space.SHARED, "local": Space.LOCAL, "param": Space.PARAMETER,
              "param::entry": Space.PARAMETER}  # fmt: skip
    row = new_row(Op.IN_WINDOW)
    row["space"] = spaces[instruction.modifiers[0]]
    return set_operands(frame, instruction, row, "u64", 1)


def elect(frame: Frame, instruction: Instruction) -> Row:
    """Decode elect.sync: one lane of those named is chosen."""
    row = new_row(Op.ELECT)
    result, members = instruction.operands
    if not isinstance(result, Pair):
        raise frame.refuse(instruction)
    if not isinstance(result.first, Sink):
        row["destination"], _ = frame.destination(instruction, result.first)
    row["destination2"], _ = frame.destination(instruction, result.second)
    row["source3"], _ = frame.source(instruction, members, "b32")
    return row


def create_policy(frame: Frame, instruction: Instruction) -> Row:
    """Decode createpolicy: cache policies do not change what is computed."""
    row = new_row(Op.MOVE)
    result = instruction.operands[0]
    if not isinstance(result, Register):
        raise frame.refuse(instruction)
    row["destination"], row["destination_width"] = frame.register(result)
    row["source0"], row["source_width"] = frame.source(instruction, Immediate("integer", 0), "b64")
    return row


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("add", "sub", "mul", "mad", "fma", "min", "max", "div", "sqrt", "rcp", "addc", "subc",
         "madc"), arithmetic,
    ),
    **dict.fromkeys(
        ("vadd2", "vsub2", "vmin2", "vmax2", "vabsdiff2", "vavrg2", "vadd4", "vsub4", "vmin4",
         "vmax4", "vabsdiff4", "vavrg4"), video,
    ),
    "sad": _simple(Op.SAD, set(), 3),
    "bmsk": _simple(Op.BIT_MASK, {"clamp", "wrap"}, 2),
    "szext": _simple(Op.EXTEND_SIZE, {"clamp", "wrap"}, 2),
    "cnot": _simple(Op.CNOT, set(), 1),
    "fns": _simple(Op.NTH_SET_BIT, set(), 3),
    "dp2a": dp2a,
    "slct": select_sign,
    "testp": test_property,
    "isspacep": in_window,
    "elect": elect,
    "createpolicy": create_policy,
}  # fmt: skip

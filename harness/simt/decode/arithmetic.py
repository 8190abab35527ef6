"""Decoding rules for arithmetic, logic, comparisons, conversions and moves."""

from __future__ import annotations

from collections.abc import Callable

from ..ptx.records import (
    TYPE_BYTES,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Special,
    Symbol,
    Vector,
)
from .encoding import (
    LOCAL_WINDOW,
    PARAMETER_WINDOW,
    SHARED_WINDOW,
    Compare,
    Flag,
    Op,
    Rounded,
    Rounding,
    Type,
)
from .operands import TYPE_OF, Frame, Row, new_row

Rule = Callable[[Frame, Instruction], Row]

ROUNDING = {"rn": Rounding.NEAREST, "rz": Rounding.ZERO, "rm": Rounding.DOWN, "rp": Rounding.UP}
_INTEGER_ROUNDING = {
    "rni": Rounding.NEAREST, "rzi": Rounding.ZERO, "rmi": Rounding.DOWN, "rpi": Rounding.UP,
}  # fmt: skip
_PLAIN: dict[str, Op] = {
    "add": Op.ADD, "sub": Op.SUB, "mul": Op.MUL, "mad": Op.MAD, "fma": Op.FMA, "div": Op.DIV,
    "rem": Op.REM, "min": Op.MIN, "max": Op.MAX, "neg": Op.NEG, "abs": Op.ABS, "and": Op.AND,
    "or": Op.OR, "xor": Op.XOR, "not": Op.NOT, "ex2": Op.EX2, "lg2": Op.LG2, "sin": Op.SIN,
    "cos": Op.COS, "tanh": Op.TANH, "sqrt": Op.SQRT, "rsqrt": Op.RSQRT, "rcp": Op.RCP,
    "copysign": Op.COPYSIGN, "popc": Op.POPC, "clz": Op.CLZ, "brev": Op.BREV, "prmt": Op.PRMT,
}  # fmt: skip
_OPERAND_COUNT: dict[str, int] = {
    "add": 2, "sub": 2, "mul": 2, "mad": 3, "fma": 3, "div": 2, "rem": 2, "min": 2, "max": 2,
    "neg": 1, "abs": 1, "and": 2, "or": 2, "xor": 2, "not": 1, "copysign": 2, "prmt": 3,
}  # fmt: skip
_IGNORED = {"rn", "noftz", "approx", "full", "lo"}
"""Modifiers without a flag of their own; approximations of other types than f32 are exact but for
the last bits."""
_APPROXIMATED = frozenset(("ex2", "lg2", "sin", "cos", "tanh", "rcp", "sqrt", "rsqrt", "div"))
_COMPARISONS: dict[str, Compare] = {
    "eq": Compare.EQ, "ne": Compare.NE, "lt": Compare.LT, "le": Compare.LE, "gt": Compare.GT,
    "ge": Compare.GE, "lo": Compare.LT, "ls": Compare.LE, "hi": Compare.GT, "hs": Compare.GE,
    "num": Compare.NUM, "nan": Compare.NAN,
}  # fmt: skip
_COMBINE = {"and": Compare.COMBINE_AND, "or": Compare.COMBINE_OR, "xor": Compare.COMBINE_XOR}
_PREDICATE_OPS = {
    "and": Op.PREDICATE_AND, "or": Op.PREDICATE_OR, "xor": Op.PREDICATE_XOR,
    "not": Op.PREDICATE_NOT,
}  # fmt: skip


def types_of(instruction: Instruction) -> list[str]:
    """Return the type modifiers of an instruction, in order."""
    return [m for m in instruction.modifiers if m in TYPE_BYTES]


def check_modifiers(frame: Frame, instruction: Instruction, allowed: set[str]) -> list[str]:
    """Return the type modifiers; refuse the instruction when it has a modifier not listed."""
    for modifier in instruction.modifiers:
        if modifier not in TYPE_BYTES and modifier not in allowed:
            raise frame.refuse(instruction, f"modifier .{modifier}")
    return types_of(instruction)


def set_operands(
    frame: Frame, instruction: Instruction, row: Row, type_name: str, count: int | None = None
) -> Row:
    """Set the destination and up to three sources of one type."""
    operands = instruction.operands
    if count is not None and len(operands) != count + 1:
        raise frame.refuse(instruction, "this number of operands")
    row["destination"], row["destination_width"] = frame.destination(instruction, operands[0])
    fields = ("source0", "source1", "source2")
    for name, operand in zip(fields, operands[1:], strict=False):
        row[name], width = frame.source(instruction, operand, type_name)
        if name == "source0":
            row["source_width"] = width
    return row


def plain(frame: Frame, instruction: Instruction) -> Row:
    """Decode operations whose operands all have the instruction's type."""
    opcode = instruction.opcode
    special = {"rz", "rm", "rp", "sat", "relu", "NaN", "hi", "wide", "ftz"}
    types = check_modifiers(frame, instruction, _IGNORED | special)
    given = set(instruction.modifiers)
    type_name = types[-1] if types else "b32"
    if len(set(types)) > 1:
        raise frame.refuse(instruction, "mixed operand types")
    if opcode == "mul" and "wide" in given or opcode == "mad" and "wide" in given:
        return _wide(frame, instruction, type_name)
    if type_name == "pred":
        row = new_row(_PREDICATE_OPS[opcode])
        return set_operands(frame, instruction, row, "pred")
    op = _PLAIN[opcode]
    if opcode == "mad" and type_name in ("f32", "f64"):
        op = Op.FMA
    if "hi" in given:
        op = Op.MUL_HIGH if opcode == "mul" else Op.MAD_HIGH
    row = new_row(op)
    row["type"] = TYPE_OF[type_name]
    row["flags"] = 0
    directed = given & {"rz", "rm", "rp"}
    rounded = {"add": Rounded.ADD, "sub": Rounded.SUB, "mul": Rounded.MUL, "fma": Rounded.FMA,
               "mad": Rounded.FMA}  # fmt: skip
    if directed or "sat" in given:
        if type_name != "f32" or opcode not in rounded:
            raise frame.refuse(instruction, "rounding or saturation of this type")
        row["opcode"] = Op.ROUNDED
        row["flags"] = rounded[opcode] << 8 | (Flag.SATURATE if "sat" in given else 0)
        row["flags"] |= ROUNDING[directed.pop()] if directed else Rounding.NEAREST
    if "relu" in given:
        if op is not Op.FMA or type_name in ("f32", "f64"):
            raise frame.refuse(instruction, "modifier .relu")
        row["flags"] |= Flag.RELU
    if "NaN" in given:
        row["flags"] |= Flag.PROPAGATE_NAN
    if "ftz" in given:
        row["flags"] |= Flag.FLUSH
    if opcode in ("div", "sqrt", "rcp") and type_name == "f32" and "rn" in given:
        row["flags"] |= Flag.SLOW_PATH
    if opcode in _APPROXIMATED and type_name == "f32" and given & {"approx", "full"}:
        row["flags"] |= Flag.APPROXIMATE
    return set_operands(frame, instruction, row, type_name, _OPERAND_COUNT.get(opcode, 1))


def _wide(frame: Frame, instruction: Instruction, type_name: str) -> Row:
    row = new_row(Op.MUL_WIDE if instruction.opcode == "mul" else Op.MAD_WIDE)
    row["type"] = TYPE_OF[type_name]
    operands = instruction.operands
    row["destination"], row["destination_width"] = frame.destination(instruction, operands[0])
    row["source0"], row["source_width"] = frame.source(instruction, operands[1], type_name)
    row["source1"], _ = frame.source(instruction, operands[2], type_name)
    if len(operands) > 3:
        wide = type_name[0] + str(2 * int(type_name[1:]))
        row["source2"], _ = frame.source(instruction, operands[3], wide)
    return row


def shift(frame: Frame, instruction: Instruction) -> Row:
    """Decode shl and shr: the count is always 32 bits wide."""
    (type_name,) = check_modifiers(frame, instruction, set())
    row = new_row(Op.SHL if instruction.opcode == "shl" else Op.SHR)
    row["type"] = TYPE_OF[type_name]
    operands = instruction.operands
    row["destination"], row["destination_width"] = frame.destination(instruction, operands[0])
    row["source0"], row["source_width"] = frame.source(instruction, operands[1], type_name)
    row["source1"], _ = frame.source(instruction, operands[2], "u32")
    return row


def bit_field(frame: Frame, instruction: Instruction) -> Row:
    """Decode bfe, bfi and bfind: positions and lengths are 32 bits wide."""
    (type_name,) = check_modifiers(frame, instruction, {"shiftamt"})
    op = {"bfe": Op.BFE, "bfi": Op.BFI, "bfind": Op.BFIND}[instruction.opcode]
    row = new_row(op)
    row["type"] = TYPE_OF[type_name]
    row["flags"] = int("shiftamt" in instruction.modifiers)
    operands = instruction.operands
    row["destination"], row["destination_width"] = frame.destination(instruction, operands[0])
    values = 2 if op is Op.BFI else 1
    for place, operand in enumerate(operands[1:]):
        kind = type_name if place < values else "u32"
        row[f"source{place}"], width = frame.source(instruction, operand, kind)
        if place == 0:
            row["source_width"] = width
    return row


def lop3(frame: Frame, instruction: Instruction) -> Row:
    """Decode lop3.b32 with its truth table."""
    check_modifiers(frame, instruction, set())
    *operands, table = instruction.operands
    if not isinstance(table, Immediate) or len(operands) != 4:
        raise frame.refuse(instruction)
    row = new_row(Op.LOP3)
    row["immediate"] = table.bits
    row["destination"], row["destination_width"] = frame.destination(instruction, operands[0])
    for place, operand in enumerate(operands[1:]):
        row[f"source{place}"], _ = frame.source(instruction, operand, "b32")
    return row


def funnel(frame: Frame, instruction: Instruction) -> Row:
    """Decode shf.{l,r}.{wrap,clamp}.b32."""
    check_modifiers(frame, instruction, {"l", "r", "wrap", "clamp"})
    row = new_row(Op.FUNNEL)
    given = instruction.modifiers
    row["flags"] = int("wrap" in given) | 2 * int("l" in given)
    return set_operands(frame, instruction, row, "b32", 3)


def select(frame: Frame, instruction: Instruction) -> Row:
    """Decode selp."""
    (type_name,) = check_modifiers(frame, instruction, set())
    row = new_row(Op.SELECT)
    *values, choice = instruction.operands
    row["destination"], row["destination_width"] = frame.destination(instruction, values[0])
    row["source0"], _ = frame.source(instruction, values[1], type_name)
    row["source1"], _ = frame.source(instruction, values[2], type_name)
    row["source2"], _ = frame.source(instruction, choice, "pred")
    return row


def _comparison(
    frame: Frame, instruction: Instruction, row: Row, type_name: str, operands: tuple[Operand, ...]
) -> None:
    """Set flags and sources of setp and set: comparison, then an optional combined predicate."""
    flags = 0
    for modifier in instruction.modifiers:
        if modifier in _COMBINE:
            flags |= _COMBINE[modifier]
        elif modifier in _COMPARISONS:
            flags |= _COMPARISONS[modifier]
        elif modifier[:-1] in _COMPARISONS and modifier.endswith("u"):
            flags |= _COMPARISONS[modifier[:-1]] | Compare.UNORDERED
        elif modifier == "ftz":
            flags |= Flag.FLUSH
        elif modifier not in TYPE_BYTES:
            raise frame.refuse(instruction, f"modifier .{modifier}")
    row["source0"], row["source_width"] = frame.source(instruction, operands[0], type_name)
    row["source1"], _ = frame.source(instruction, operands[1], type_name)
    if len(operands) > 2:
        third = operands[2]
        if isinstance(third, Negated):
            flags |= Compare.NEGATE_COMBINED
            third = third.operand
        row["source2"], _ = frame.source(instruction, third, "pred")
    row["flags"] = flags


def compare(frame: Frame, instruction: Instruction) -> Row:
    """Decode setp."""
    type_name = types_of(instruction)[-1]
    row = new_row(Op.COMPARE)
    row["type"] = TYPE_OF[type_name]
    result = instruction.operands[0]
    if isinstance(result, Pair):
        row["destination2"], _ = frame.destination(instruction, result.second)
        result = result.first
    row["destination"], _ = frame.destination(instruction, result)
    _comparison(frame, instruction, row, type_name, instruction.operands[1:])
    return row


def compare_set(frame: Frame, instruction: Instruction) -> Row:
    """Decode set: a value a lane instead of a predicate."""
    result_type, type_name = types_of(instruction)[-2:]
    row = new_row(Op.COMPARE_SET)
    row["type"], row["source_type"] = TYPE_OF[result_type], TYPE_OF[type_name]
    operands = instruction.operands
    row["destination"], row["destination_width"] = frame.destination(instruction, operands[0])
    _comparison(frame, instruction, row, type_name, operands[1:])
    return row


def convert(frame: Frame, instruction: Instruction) -> Row:
    """Decode cvt between scalars, and from two floats to a pair of halves."""
    if "pack" in instruction.modifiers:
        return _pack_saturated(frame, instruction)
    if _FP8 & set(instruction.modifiers):
        return _convert_fp8(frame, instruction)
    allowed = {*ROUNDING, *_INTEGER_ROUNDING, "ftz", "sat", "relu", "satfinite", "rna"}
    types = check_modifiers(frame, instruction, allowed)
    given = set(instruction.modifiers)
    to, source = types[-2], types[-1]
    known = set(TYPE_OF) - {"tf32", "pred"}
    if to == "tf32" and source == "f32":
        return _to_tf32(frame, instruction, given)
    if to not in known or source not in known or given & {"satfinite", "rna"}:
        raise frame.refuse(instruction, "conversion")
    flags = sum(int(ROUNDING[m]) for m in given if m in ROUNDING)
    operands = instruction.operands
    if to in ("f16x2", "bf16x2"):
        if source != "f32" or len(operands) != 3 or "sat" in given:
            raise frame.refuse(instruction, "conversion")
        row = new_row(Op.CONVERT_PACK)
        row["type"] = TYPE_OF[to]
        row["flags"] = flags | (Flag.RELU if "relu" in given else 0)
        return set_operands(frame, instruction, row, "f32", 2)
    for modifier in given & set(_INTEGER_ROUNDING):
        flags = int(_INTEGER_ROUNDING[modifier])
        if to.startswith(("f", "bf")):
            flags |= Flag.INTEGER_ROUNDING
    if "sat" in given:
        flags |= Flag.SATURATE
    if "relu" in given:
        flags |= Flag.RELU
    if "ftz" in given:
        flags |= Flag.FLUSH
    row = new_row(Op.CONVERT)
    row["type"], row["source_type"], row["flags"] = TYPE_OF[to], TYPE_OF[source], flags
    return set_operands(frame, instruction, row, source, 1)


def _to_tf32(frame: Frame, instruction: Instruction, given: set[str]) -> Row:
    if given & {"satfinite", "sat", "ftz", "rm", "rp"}:
        raise frame.refuse(instruction, "conversion")
    row = new_row(Op.CONVERT)
    row["type"], row["source_type"] = Type.TF32, Type.F32
    row["flags"] = sum(int(ROUNDING[m]) for m in given if m in ROUNDING)
    if "rna" in given:
        row["flags"] = int(Rounding.AWAY)
    if "relu" in given:
        row["flags"] |= Flag.RELU
    return set_operands(frame, instruction, row, "f32", 1)


_FP8 = {"e4m3x2", "e5m2x2"}


def _convert_fp8(frame: Frame, instruction: Instruction) -> Row:
    """Decode cvt between pairs of fp8 numbers and of f32 or f16; products of fp8 are refused."""
    allowed = {*_FP8, "rn", "satfinite", "relu"}
    types = check_modifiers(frame, instruction, allowed)
    given = instruction.modifiers
    format_name = next(m for m in given if m in _FP8)
    (other,) = types
    if other not in ("f32", "f16x2"):
        raise frame.refuse(instruction, "conversion")
    row = new_row(Op.CONVERT_FP8)
    row["type"] = TYPE_OF[other]
    row["flags"] = int(format_name == "e5m2x2") | (Flag.RELU if "relu" in given else 0)
    # To fp8, or from it: which of the two comes last is the source.
    row["count"] = int(given.index(format_name) < given.index(other))
    return set_operands(frame, instruction, row, "b16" if not row["count"] else
                        "f32" if other == "f32" else "b32")  # fmt: skip


def _pack_saturated(frame: Frame, instruction: Instruction) -> Row:
    """Decode cvt.pack.sat: two integers, saturated, in front of a third operand."""
    types = check_modifiers(frame, instruction, {"pack", "sat"})
    if types[0] not in ("s8", "u8", "s16", "u16") or types[1] != "s32":
        raise frame.refuse(instruction, "conversion")
    row = new_row(Op.PACK_SATURATED)
    row["type"], row["count"] = TYPE_OF["s32"], int(types[0][1:])
    row["flags"] = int(types[0].startswith("s"))
    row["immediate"] = int(len(instruction.operands) > 3)
    return set_operands(frame, instruction, row, "s32")


def convert_address(frame: Frame, instruction: Instruction) -> Row:
    """Decode cvta: windows of shared, local and parameter memory are added or taken away."""
    spaces = {"global", "shared", "local", "const", "param"}
    check_modifiers(frame, instruction, {*spaces, "to", "shared::cta", "param::entry"})
    space = next(m.split("::")[0] for m in instruction.modifiers if m.split("::")[0] in spaces)
    in_kernel = instruction.function == frame.kernel.name
    window = {
        "shared": SHARED_WINDOW,
        "local": LOCAL_WINDOW,
        "param": PARAMETER_WINDOW if in_kernel else LOCAL_WINDOW,
    }.get(space, 0)
    if "to" in instruction.modifiers:
        window = -window
    row = new_row(Op.ADD)
    row["type"] = Type.U64
    set_operands(frame, instruction, row, "u64", 1)
    row["source1"] = frame.constant(8, window)
    if row["source_width"] != 8 or row["destination_width"] != 8:
        raise frame.refuse(instruction, "32-bit addresses")
    return row


def move(frame: Frame, instruction: Instruction) -> Row:
    """Decode mov: registers, constants, addresses, special registers, packing and unpacking."""
    (type_name,) = check_modifiers(frame, instruction, set())
    result, value = instruction.operands
    if type_name == "b128":
        raise frame.refuse(instruction, "128-bit registers")
    if isinstance(result, Vector):
        row = new_row(Op.UNPACK)
        row["operands"] = frame.vector(instruction, result.items, type_name, writes=True)
        row["count"] = len(result.items)
        row["source0"], row["source_width"] = frame.source(instruction, value, type_name)
        return row
    if isinstance(value, Vector):
        row = new_row(Op.PACK)
        part = f"b{8 * TYPE_BYTES[type_name] // len(value.items)}"
        row["operands"] = frame.vector(instruction, value.items, part, writes=False)
        row["count"] = len(value.items)
        row["destination"], row["destination_width"] = frame.destination(instruction, result)
        return row
    if isinstance(value, Symbol) and frame.stacked and value.name in frame.local_offsets:
        row = new_row(Op.FRAME_ADDRESS)
        row["destination"], row["destination_width"] = frame.destination(instruction, result)
        row["immediate"] = frame.local_offsets[value.name]
        return row
    if isinstance(value, Special) and value.name.startswith(("%clock", "%globaltimer")):
        row = new_row(Op.CLOCK)
        row["destination"], row["destination_width"] = frame.destination(instruction, result)
        return row
    row = new_row(Op.MOVE_PREDICATE if type_name == "pred" else Op.MOVE)
    set_operands(frame, instruction, row, type_name, 1)
    if type_name != "pred" and row["source_width"] != row["destination_width"]:
        row["opcode"] = Op.CONVERT  # a 32-bit special register read as 16 or 64 bits
        row["type"] = TYPE_OF[f"u{8 * row['destination_width']}"]
        row["source_type"] = TYPE_OF[f"u{8 * row['source_width']}"]
    return row


def dp4a(frame: Frame, instruction: Instruction) -> Row:
    """Decode dp4a: four products of bytes."""
    types = check_modifiers(frame, instruction, set())
    row = new_row(Op.DP4A)
    row["flags"] = int(types[0] == "s32") | 2 * int(types[1] == "s32")
    return set_operands(frame, instruction, row, "b32", 3)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_PLAIN, plain),
    "shl": shift,
    "shr": shift,
    "bfe": bit_field,
    "bfi": bit_field,
    "bfind": bit_field,
    "lop3": lop3,
    "shf": funnel,
    "selp": select,
    "setp": compare,
    "set": compare_set,
    "cvt": convert,
    "cvta": convert_address,
    "mov": move,
    "dp4a": dp4a,
}

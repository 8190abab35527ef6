"""Decoding rules for loads, stores, atomics, copies, warp-wide and tensor-core instructions."""

from __future__ import annotations

import re

from .decode_arithmetic import Rule, check_modifiers
from .decode_operands import TYPE_OF, Frame, Row, items_of, new_row
from .encoding import Atomic, Flag, Op, Shuffle, Space, Vote
from .ptx_records import TYPE_BYTES, Address, Immediate, Instruction, Negated, Pair, Register, Sink

_SPACES: dict[str, Space] = {
    "global": Space.GLOBAL, "const": Space.GLOBAL, "shared": Space.SHARED,
    "shared::cta": Space.SHARED, "local": Space.LOCAL, "param": Space.PARAMETER,
    "param::entry": Space.PARAMETER, "param::func": Space.PARAMETER,
}  # fmt: skip
_ORDERS = {"weak", "relaxed", "acquire", "release", "acq_rel", "volatile"}
_SCOPES = {"cta", "gpu", "sys"}
_CACHE_HINTS = {
    "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified",
    "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
    "L1::no_allocate", "L2::evict_first", "L2::evict_last", "L2::evict_normal",
    "L2::64B", "L2::128B", "L2::256B",
}  # fmt: skip
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_ATOMICS = {item.name.lower(): item for item in Atomic}
_ATOMIC_TYPES: dict[str, set[str]] = {
    "add": {"u32", "s32", "u64", "s64", "f32", "f64", "f16", "bf16", "f16x2", "bf16x2"},
    "min": {"u32", "s32", "u64", "s64"}, "max": {"u32", "s32", "u64", "s64"},
    "and": {"b32", "b64"}, "or": {"b32", "b64"}, "xor": {"b32", "b64"},
    "exch": {"b32", "b64", "u32", "s32", "f32", "u64"},
    "cas": {"b16", "b32", "b64", "u32", "s32", "u64"}, "inc": {"u32"}, "dec": {"u32"},
}  # fmt: skip
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


def space_of(instruction: Instruction) -> Space:
    """Return the state space an access names, generic when it names none."""
    return next((_SPACES[m] for m in instruction.modifiers if m in _SPACES), Space.GENERIC)


def access(frame: Frame, instruction: Instruction) -> Row:
    """Decode ld and st."""
    types = check_modifiers(
        frame, instruction, {*_SPACES, *_ORDERS, *_SCOPES, *_CACHE_HINTS, *_VECTORS}
    )
    given = set(instruction.modifiers)
    type_name, space = types[-1], space_of(instruction)
    if type_name not in TYPE_OF or type_name == "pred":
        raise frame.refuse(instruction, "128-bit elements")
    storing = instruction.opcode == "st"
    memory, value = instruction.operands if storing else instruction.operands[::-1]
    row = new_row(Op.STORE if storing else Op.LOAD)
    row["type"], row["flags"] = TYPE_OF[type_name], 0
    if space is Space.PARAMETER:
        # Only the kernel's own parameters lie in the parameter buffer; see Frame._local_layout.
        row["flags"] |= Flag.UNCOUNTED
        if storing or not _is_kernel_parameter(frame, instruction, memory):
            space = Space.LOCAL
    if "const" in given:
        row["flags"] |= Flag.UNCOUNTED
    if given & {"volatile", "relaxed", "acquire", "release"}:
        row["flags"] |= Flag.STRONG
    if "release" in given:
        row["flags"] |= Flag.RELEASE
    row["space"] = space
    row["count"] = next((_VECTORS[m] for m in given if m in _VECTORS), 1)
    if row["count"] * TYPE_BYTES[type_name] > 32:
        raise frame.refuse(instruction, "accesses of more than 32 bytes")
    frame.address(instruction, memory, row)
    row["operands"] = frame.vector(instruction, items_of(value), type_name, writes=not storing)
    return row


def _is_kernel_parameter(frame: Frame, instruction: Instruction, memory: object) -> bool:
    if instruction.function != frame.kernel.name or not isinstance(memory, Address):
        return False
    base = memory.base
    if isinstance(base, Register):
        return True  # nothing but a kernel parameter's address reaches a register here
    return getattr(base, "name", "").split("|")[-1] in frame.parameter_offsets and (
        getattr(base, "name", "") not in frame.local_offsets
    )


def atomic(frame: Frame, instruction: Instruction) -> Row:
    """Decode atom and red."""
    allowed = {*_SPACES, *_ORDERS, *_SCOPES, *_ATOMICS, "noftz"} - {"volatile", "weak"}
    types = check_modifiers(frame, instruction, allowed)
    operation = next((m for m in instruction.modifiers if m in _ATOMICS), "")
    type_name = types[-1]
    if type_name not in _ATOMIC_TYPES.get(operation, set()):
        raise frame.refuse(instruction, "atomic operation")
    operands = list(instruction.operands)
    row = new_row(Op.ATOMIC)
    row["type"], row["target"] = TYPE_OF[type_name], _ATOMICS[operation]
    row["space"], row["flags"] = space_of(instruction), 0
    if set(instruction.modifiers) & {"release", "acq_rel"}:
        row["flags"] |= Flag.RELEASE
    if instruction.opcode == "atom":
        result = operands.pop(0)
        if not isinstance(result, Sink):
            row["destination"], row["destination_width"] = frame.destination(instruction, result)
    frame.address(instruction, operands[0], row)
    row["source1"], row["source3"] = frame.source(instruction, operands[1], type_name)
    if operation == "cas":
        row["source2"], _ = frame.source(instruction, operands[2], type_name)
    return row


def copy(frame: Frame, instruction: Instruction) -> Row:
    """Decode cp.async and its groups; the bulk and mbarrier forms are not known."""
    allowed = {"async", "ca", "cg", "shared", "shared::cta", "global", "commit_group",
               "wait_group", "wait_all", "L2::64B", "L2::128B", "L2::256B"}  # fmt: skip
    check_modifiers(frame, instruction, allowed)
    given, operands = set(instruction.modifiers), instruction.operands
    if "async" not in given:
        raise frame.refuse(instruction)
    if "commit_group" in given:
        return new_row(Op.ASYNC_COMMIT)
    if "wait_all" in given:
        return {**new_row(Op.ASYNC_WAIT), "count": -1}
    if "wait_group" in given:
        if not isinstance(operands[0], Immediate):
            raise frame.refuse(instruction)
        return {**new_row(Op.ASYNC_WAIT), "count": operands[0].bits}
    destination, source, size, *rest = operands
    if not isinstance(source, Address) or not isinstance(size, Immediate):
        raise frame.refuse(instruction)
    row = new_row(Op.ASYNC_COPY)
    row["space"], row["count"], row["flags"] = Space.SHARED, size.bits, 0
    frame.address(instruction, destination, row)
    base, _ = frame.source(instruction, source.base, "u64")
    row["operands"] = len(frame.operands)
    frame.operands += [base, source.offset]
    for operand in rest:
        if isinstance(operand, Register) and operand.type == "pred":
            row["source2"], _ = frame.source(instruction, operand, "pred")
        else:
            row["source1"], _ = frame.source(instruction, operand, "u32")
    return row


def shuffle(frame: Frame, instruction: Instruction) -> Row:
    """Decode shfl.sync."""
    modes = {item.name.lower(): item for item in Shuffle}
    check_modifiers(frame, instruction, {"sync", *modes})
    if instruction.modifiers[0] != "sync":
        raise frame.refuse(instruction, "not .sync")
    row = new_row(Op.SHUFFLE)
    row["flags"] = modes[instruction.modifiers[1]]
    result, *sources = instruction.operands
    if isinstance(result, Pair):
        row["destination2"], _ = frame.destination(instruction, result.second)
        result = result.first
    row["destination"], row["destination_width"] = frame.destination(instruction, result)
    if row["destination"] < 0:
        row["destination"] = frame.scratch(4)
    for place, operand in enumerate(sources):
        row[f"source{place}"], _ = frame.source(instruction, operand, "b32")
    return row


def vote(frame: Frame, instruction: Instruction) -> Row:
    """Decode vote.sync."""
    modes = {item.name.lower(): item for item in Vote}
    check_modifiers(frame, instruction, {"sync", "ballot", "any", "all", "uni"})
    if instruction.modifiers[0] != "sync":
        raise frame.refuse(instruction, "not .sync")
    row = new_row(Op.VOTE)
    row["flags"] = modes[instruction.modifiers[1]]
    result, value, members = instruction.operands
    row["destination"], _ = frame.destination(instruction, result)
    _predicate(frame, instruction, value, row)
    row["source3"], _ = frame.source(instruction, members, "b32")
    return row


def _predicate(frame: Frame, instruction: Instruction, value: object, row: Row) -> None:
    """Set source0 to a predicate, and count to 1 when it is negated."""
    if isinstance(value, Negated):
        row["count"], value = 1, value.operand
    if not isinstance(value, Register | Immediate):
        raise frame.refuse(instruction)
    row["source0"], _ = frame.source(instruction, value, "pred")


def active_mask(frame: Frame, instruction: Instruction) -> Row:
    """Decode activemask."""
    row = new_row(Op.ACTIVE_MASK)
    row["destination"], _ = frame.destination(instruction, instruction.operands[0])
    return row


def redux(frame: Frame, instruction: Instruction) -> Row:
    """Decode redux.sync of 32-bit integers."""
    names = ("add", "min", "max", "and", "or", "xor")
    (type_name,) = check_modifiers(frame, instruction, {"sync", *names})
    if type_name not in ("u32", "s32", "b32"):
        raise frame.refuse(instruction, "this type")
    row = new_row(Op.REDUX)
    row["type"], row["flags"] = TYPE_OF[type_name], _ATOMICS[instruction.modifiers[1]]
    row["destination"], _ = frame.destination(instruction, instruction.operands[0])
    row["source0"], _ = frame.source(instruction, instruction.operands[1], type_name)
    row["source3"], _ = frame.source(instruction, instruction.operands[2], "b32")
    return row


def match(frame: Frame, instruction: Instruction) -> Row:
    """Decode match.any.sync and match.all.sync."""
    (type_name,) = check_modifiers(frame, instruction, {"any", "all", "sync"})
    row = new_row(Op.MATCH_ANY if "any" in instruction.modifiers else Op.MATCH_ALL)
    result, value, members = instruction.operands
    if isinstance(result, Pair):
        row["destination2"], _ = frame.destination(instruction, result.second)
        result = result.first
    row["destination"], _ = frame.destination(instruction, result)
    row["source0"], row["source_width"] = frame.source(instruction, value, type_name)
    row["source3"], _ = frame.source(instruction, members, "b32")
    return row


def load_matrix(frame: Frame, instruction: Instruction) -> Row:
    """Decode ldmatrix of 8x8 tiles of 16-bit elements."""
    counts = {"x1": 1, "x2": 2, "x4": 4}
    allowed = {"sync", "aligned", "m8n8", "trans", "shared", "shared::cta", *counts}
    check_modifiers(frame, instruction, allowed)
    row = new_row(Op.LOAD_MATRIX)
    row["count"] = next(counts[m] for m in instruction.modifiers if m in counts)
    row["flags"] = int("trans" in instruction.modifiers)
    row["space"] = space_of(instruction)
    result, memory = instruction.operands
    row["operands"] = frame.vector(instruction, items_of(result), "b32", writes=True)
    frame.address(instruction, memory, row)
    return row


def mma(frame: Frame, instruction: Instruction) -> Row:
    """Decode mma.sync of f16, bf16 and tf32 in the m16n8 shapes."""
    shapes = {("f16", 8), ("f16", 16), ("bf16", 8), ("bf16", 16), ("tf32", 4), ("tf32", 8)}
    modifiers = instruction.modifiers
    shape = next((m for m in modifiers if _SHAPE.fullmatch(m)), "m0n0k0")
    types = check_modifiers(frame, instruction, {"sync", "aligned", "row", "col", shape})
    matched = _SHAPE.fullmatch(shape)
    assert matched
    rows, columns, inner = (int(part) for part in matched.groups())
    layouts = [m for m in modifiers if m in ("row", "col")]
    if (
        len(types) != 4
        or (rows, columns) != (16, 8)
        or layouts != ["row", "col"]
        or types[1] != types[2]
        or (types[1], inner) not in shapes
        or types[0] != types[3]
        or types[0] not in (("f16", "f32") if types[1] == "f16" else ("f32",))
    ):
        raise frame.refuse(instruction, "tensor-core shape or types")
    row = new_row(Op.MMA)
    row["type"], row["source_type"], row["count"] = TYPE_OF[types[0]], TYPE_OF[types[1]], inner
    result, left, right, sums = (items_of(operand) for operand in instruction.operands)
    row["operands"] = frame.vector(instruction, result, "b32", writes=True)
    for items, type_name in ((left, "b32"), (right, "b32"), (sums, types[3])):
        frame.vector(instruction, items, "f32" if type_name == "f32" else "b32", writes=False)
    return row


def wmma(frame: Frame, instruction: Instruction) -> Row:
    """Decode wmma of f16 and bf16 with float or half sums."""
    modifiers = instruction.modifiers
    shape = next((m for m in modifiers if _SHAPE.fullmatch(m)), "m0n0k0")
    allowed = {"load", "store", "mma", "sync", "aligned", "a", "b", "c", "d", "row", "col",
               *_SPACES, shape}  # fmt: skip
    types = check_modifiers(frame, instruction, allowed)
    if shape not in ("m16n16k16", "m8n32k16", "m32n8k16"):
        raise frame.refuse(instruction, "tensor-core shape")
    matched = _SHAPE.fullmatch(shape)
    assert matched
    rows, columns, inner = (int(part) for part in matched.groups())
    if modifiers[0] == "mma":
        return _wmma_mma(frame, instruction, types, rows << 16 | columns << 8 | inner)
    if types[-1] not in ("f16", "bf16", "f32"):
        raise frame.refuse(instruction, "tensor-core types")
    extents = {"a": (rows, inner), "b": (inner, columns)}.get(modifiers[1], (rows, columns))
    loading = modifiers[0] == "load"
    row = new_row(Op.WMMA_LOAD if loading else Op.WMMA_STORE)
    row["type"], row["target"] = TYPE_OF[types[-1]], extents[0] << 8 | extents[1]
    row["flags"], row["space"] = int("row" in modifiers), space_of(instruction)
    first, second, *stride = instruction.operands
    fragment, memory = (first, second) if loading else (second, first)
    items = items_of(fragment)
    row["count"] = len(items)
    row["operands"] = frame.vector(instruction, items, "b32", writes=loading)
    frame.address(instruction, memory, row)
    if stride:
        row["source1"], _ = frame.source(instruction, stride[0], "u32")
    return row


def _wmma_mma(frame: Frame, instruction: Instruction, types: list[str], shape: int) -> Row:
    if len(types) == 2:
        types = [types[0], "f16", "f16", types[1]]
    result_type, left_type, right_type, sum_type = types
    if left_type not in ("f16", "bf16") or left_type != right_type:
        raise frame.refuse(instruction, "tensor-core types")
    row = new_row(Op.WMMA_MMA)
    row["type"], row["source_type"] = TYPE_OF[result_type], TYPE_OF[left_type]
    row["target"], row["immediate"] = TYPE_OF[sum_type], shape
    result, left, right, sums = (items_of(operand) for operand in instruction.operands)
    row["count"], row["source1"], row["source2"] = len(result), len(left), len(right)
    row["operands"] = frame.vector(instruction, result, "b32", writes=True)
    for items in (left, right, sums):
        frame.vector(instruction, items, "b32", writes=False)
    return row


RULES: dict[str, Rule] = {
    "ld": access,
    "ldu": access,
    "st": access,
    "atom": atomic,
    "red": atomic,
    "cp": copy,
    "shfl": shuffle,
    "vote": vote,
    "activemask": active_mask,
    "redux": redux,
    "match": match,
    "ldmatrix": load_matrix,
    "mma": mma,
    "wmma": wmma,
}

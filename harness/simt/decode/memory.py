"""Decoding rules for loads, stores, atomics, copies and warp-wide instructions."""

from __future__ import annotations

from ..ptx.records import (
    TYPE_BYTES,
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
)
from .arithmetic import Rule, check_modifiers
from .barriers import copy_arrive
from .encoding import Atomic, Flag, Op, Shuffle, Space, Vote
from .operands import TYPE_OF, Frame, Row, items_of, new_row

SPACES: dict[str, Space] = {
    "global": Space.GLOBAL, "const": Space.GLOBAL, "shared": Space.SHARED,
    "shared::cta": Space.SHARED, "shared::cluster": Space.SHARED,
    "local": Space.LOCAL, "param": Space.PARAMETER,
    "param::entry": Space.PARAMETER, "param::func": Space.PARAMETER,
}  # fmt: skip
_ORDERS = {"weak", "relaxed", "acquire", "release", "acq_rel", "volatile"}
_NARROW_SCOPES = {"cta", "cluster"}
_SCOPES = {*_NARROW_SCOPES, "gpu", "sys"}
_CACHE_HINTS = {
    "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified",
    "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
    "L1::no_allocate", "L2::evict_first", "L2::evict_last", "L2::evict_normal",
    "L2::64B", "L2::128B", "L2::256B", "L2::cache_hint",
}  # fmt: skip
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_ATOMICS = {item.name.lower(): item for item in Atomic}
_HALF_TYPES = {"f16", "bf16", "f16x2", "bf16x2"}
_ATOMIC_TYPES: dict[str, set[str]] = {
    "add": {"u32", "s32", "u64", "s64", "f32", "f64", *_HALF_TYPES},
    "min": {"u32", "s32", "u64", "s64", *_HALF_TYPES},
    "max": {"u32", "s32", "u64", "s64", *_HALF_TYPES},
    "and": {"b32", "b64"}, "or": {"b32", "b64"}, "xor": {"b32", "b64"},
    "exch": {"b32", "b64", "u32", "s32", "f32", "u64"},
    "cas": {"b16", "b32", "b64", "u32", "s32", "u64"}, "inc": {"u32"}, "dec": {"u32"},
}  # fmt: skip


def space_of(instruction: Instruction) -> Space:
    """Return the state space an access names, generic when it names none."""
    return next((SPACES[m] for m in instruction.modifiers if m in SPACES), Space.GENERIC)


def access(frame: Frame, instruction: Instruction) -> Row:
    """Decode ld and st."""
    types = check_modifiers(
        frame, instruction, {*SPACES, *_ORDERS, *_SCOPES, *_CACHE_HINTS, *_VECTORS}
    )
    given = set(instruction.modifiers)
    type_name, space = types[-1], space_of(instruction)
    if type_name not in TYPE_OF or type_name == "pred":
        raise frame.refuse(instruction, "128-bit elements")
    storing = instruction.opcode == "st"
    first, second = instruction.operands[:2]  # a third is a cache policy
    memory, value = (first, second) if storing else (second, first)
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
    if given & {"volatile", "relaxed", "acquire", "cg", "cv"}:
        row["flags"] |= Flag.BYPASS
    if "volatile" in given:
        row["flags"] |= Flag.VOLATILE
    if "release" in given:
        row["flags"] |= Flag.RELEASE
    if given & _NARROW_SCOPES:
        row["flags"] |= Flag.NARROW
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
    """Decode atom and red, scalar or vector."""
    allowed = {*SPACES, *_ORDERS, *_SCOPES, *_ATOMICS, *_VECTORS, "noftz", "L2::cache_hint"}
    types = check_modifiers(frame, instruction, allowed - {"volatile", "weak"})
    given = set(instruction.modifiers)
    operation = next((m for m in instruction.modifiers if m in _ATOMICS), "")
    type_name = types[-1]
    if type_name not in _ATOMIC_TYPES.get(operation, set()):
        raise frame.refuse(instruction, "atomic operation")
    operands = list(instruction.operands)
    row = new_row(Op.ATOMIC)
    row["type"], row["target"] = TYPE_OF[type_name], _ATOMICS[operation]
    row["space"], row["flags"] = space_of(instruction), 0
    if given & {"release", "acq_rel"}:
        row["flags"] |= Flag.RELEASE
    if given & _NARROW_SCOPES:
        row["flags"] |= Flag.NARROW
    row["count"] = next((_VECTORS[m] for m in given if m in _VECTORS), 1)
    if row["count"] * TYPE_BYTES[type_name] > 16:
        raise frame.refuse(instruction, "accesses of more than 16 bytes")
    results: tuple[Operand, ...] = (Sink(),) * row["count"]
    if instruction.opcode == "atom":
        results = items_of(operands.pop(0))
        if len(results) != row["count"]:
            results = (Sink(),) * row["count"]
    frame.address(instruction, operands[0], row)
    row["operands"] = frame.vector(instruction, results, type_name, writes=True)
    frame.vector(instruction, items_of(operands[1]), type_name, writes=False)
    if operation == "cas":
        row["source2"], _ = frame.source(instruction, operands[2], type_name)
    return row


def copy(frame: Frame, instruction: Instruction) -> Row:
    """Decode cp.async and its groups; the bulk and mbarrier forms are not known."""
    allowed = {"async", "ca", "cg", "shared", "shared::cta", "global", "commit_group",
               "wait_group", "wait_all", "L2::64B", "L2::128B", "L2::256B", "L2::cache_hint",
               "mbarrier", "arrive", "noinc"}  # fmt: skip
    if given := set(instruction.modifiers) & {"bulk", "reduce"}:
        raise frame.needs_hardware(instruction, f"TMA (cp.{'.'.join(sorted(given))})")
    check_modifiers(frame, instruction, allowed)
    given, operands = set(instruction.modifiers), instruction.operands
    if "async" not in given:
        raise frame.refuse(instruction)
    if "mbarrier" in given:
        return copy_arrive(frame, instruction)
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
    if "cg" in given:
        row["flags"] |= Flag.BYPASS
    base, _ = frame.source(instruction, source.base, "u64")
    row["operands"] = len(frame.operands)
    frame.operands += [base, source.offset]
    if "L2::cache_hint" in given:
        rest = rest[:-1]
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
}

"""Decoding rules for barriers: of a block or part of it, of a warp, and in shared memory."""

from __future__ import annotations

from ..ptx.records import Address, Instruction, Negated, Operand, Sink
from .arithmetic import Rule, check_modifiers
from .encoding import Mbarrier, Op, Space, Type, Vote
from .operands import Frame, Row, new_row

_REDUCTIONS = {"popc": Vote.POPC, "and": Vote.ALL, "or": Vote.ANY}
_MBARRIER = {
    "init": Mbarrier.INIT, "inval": Mbarrier.INVALIDATE, "arrive": Mbarrier.ARRIVE,
    "arrive_drop": Mbarrier.ARRIVE_DROP, "expect_tx": Mbarrier.EXPECT,
    "complete_tx": Mbarrier.COMPLETE, "test_wait": Mbarrier.TEST, "try_wait": Mbarrier.TEST,
    "pending_count": Mbarrier.PENDING_COUNT,
}  # fmt: skip
_MBARRIER_MODIFIERS = {
    *_MBARRIER, "shared", "shared::cta", "shared::cluster", "noComplete", "parity", "acquire",
    "release", "relaxed", "cta", "cluster",
}  # fmt: skip


def barrier(frame: Frame, instruction: Instruction) -> Row:
    """Decode bar and barrier: sync, arrive and red, with any number and thread count."""
    if "cluster" in instruction.modifiers:
        raise frame.needs_hardware(instruction, "thread block clusters (barrier.cluster)")
    known = {"warp", "sync", "cta", "aligned", "red", "arrive", *_REDUCTIONS}
    check_modifiers(frame, instruction, known)
    given, operands = set(instruction.modifiers), list(instruction.operands)
    if "warp" in given:
        row = new_row(Op.WARP_BARRIER)
        row["source3"], _ = frame.source(instruction, operands[0], "b32")
        return row
    if "red" in given:
        row = new_row(Op.BARRIER_REDUCE)
        row["flags"] = next(_REDUCTIONS[m] for m in instruction.modifiers if m in _REDUCTIONS)
        row["destination"], _ = frame.destination(instruction, operands.pop(0))
        value: Operand = operands.pop()
        if isinstance(value, Negated):
            row["count"], value = 1, value.operand
        row["source0"], _ = frame.source(instruction, value, "pred")
    else:
        row = new_row(Op.BARRIER_ARRIVE if "arrive" in given else Op.BARRIER)
    row["source1"], _ = frame.source(instruction, operands[0], "b32")
    if len(operands) > 1:
        row["source2"], _ = frame.source(instruction, operands[1], "b32")
    return row


def mbarrier(frame: Frame, instruction: Instruction) -> Row:
    """Decode mbarrier operations on this block's own barrier objects."""
    check_modifiers(frame, instruction, _MBARRIER_MODIFIERS)
    given = set(instruction.modifiers)
    operation = _MBARRIER[instruction.modifiers[0]]
    row = new_row(Op.MBARRIER)
    row["flags"], row["type"] = int(operation), Type.U32
    row["space"] = Space.GENERIC
    if any(modifier.startswith("shared") for modifier in given):
        row["space"] = Space.SHARED
    operands = list(instruction.operands)
    row["destination"] = -1
    if not isinstance(operands[0], Address):
        result = operands.pop(0)
        if not isinstance(result, Sink):
            row["destination"], row["destination_width"] = frame.destination(instruction, result)
    if operation is Mbarrier.PENDING_COUNT:
        row["type"] = Type.U64
        row["source1"], _ = frame.source(instruction, operands[0], "b64")
        return row
    frame.address(instruction, operands[0], row)
    row["target"] = int("noComplete" in given)
    if "expect_tx" in given and operation is not Mbarrier.EXPECT:
        row["count"] = 1
    if operation is Mbarrier.TEST:
        if "parity" in given:
            row["flags"] = int(Mbarrier.TEST_PARITY)
        else:
            row["type"] = Type.U64
    if len(operands) > 1:
        kind = "b64" if row["type"] == Type.U64 else "b32"
        row["source1"], _ = frame.source(instruction, operands[1], kind)
    return row


def copy_arrive(frame: Frame, instruction: Instruction) -> Row:
    """Decode cp.async.mbarrier.arrive: an arrival when this thread's copies are done."""
    row = new_row(Op.COPY_ARRIVE)
    row["flags"], row["type"] = int(Mbarrier.ARRIVE), Type.U32
    shared = any(modifier.startswith("shared") for modifier in instruction.modifiers)
    row["space"] = Space.SHARED if shared else Space.GENERIC
    frame.address(instruction, instruction.operands[0], row)
    # Without .noinc the arrival was not counted in the barrier's own: it is added and taken away.
    row["target"] = 0 if "noinc" in instruction.modifiers else 2
    return row


RULES: dict[str, Rule] = {"bar": barrier, "barrier": barrier, "mbarrier": mbarrier}

"""Turns one kernel and what it calls into the flat rows that the C core executes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..ptx.records import Instruction, Module, Symbol
from ..ptx.registers import atomics_read
from . import arithmetic, barriers, calls, matrix, memory, rare
from .arithmetic import Rule
from .encoding import ROW, ROW_FIELDS, SPECIAL_REGISTERS, Atomic, Flag, Op, Space
from .operands import CONSTANT_TAG, Frame, Row, UnsupportedInstruction, addressed, new_row
from .own_part import own_part
from .places import Buffer, short_name

__all__ = ["Program", "Programs", "UnsupportedInstruction", "decode"]

_RULES: dict[str, Rule] = {
    **arithmetic.RULES, **memory.RULES, **barriers.RULES,
    **matrix.RULES, **rare.RULES,
}  # fmt: skip
_NO_REGISTER = ("guard", "destination", "destination2", "source0", "source1", "source2", "source3")
_REGISTER_FIELDS = ("source0", "source1", "source2", "source3")
_HINTS = {"prefetch", "prefetchu", "applypriority", "griddepcontrol", "pmevent", "setmaxnreg"}
"""Instructions that change when things happen, never what is computed."""
_HARDWARE = {
    "wgmma": "warp-group products (wgmma)", "tensormap": "TMA (tensormap)",
    "mapa": "thread block clusters (mapa)", "getctarank": "thread block clusters (getctarank)",
    "clusterlaunchcontrol": "thread block clusters (clusterlaunchcontrol)",
    "multimem": "multicast memory (multimem)", "tcgen05": "tcgen05",
    "discard": "memory that holds anything afterwards (discard)",
    "tex": "textures (tex)", "tld4": "textures (tld4)", "txq": "textures (txq)",
    "suld": "surfaces (suld)", "sust": "surfaces (sust)", "sured": "surfaces (sured)",
}  # fmt: skip
"""What is refused by name: only a real GPU can run such a candidate."""


class Programs:
    """The kernels of a module, each decoded once for all of its launches."""

    def __init__(self, module: Module, global_addresses: Mapping[str, int]) -> None:
        self._module, self._global_addresses = module, global_addresses
        self._parts: dict[str, tuple[Module, dict[int, int]]] = {}
        self._decoded: dict[tuple[str, int], Program] = {}
        self._whole = bool(addressed(module))

    def part(self, kernel: str) -> tuple[Module, dict[int, int]]:
        """Return the kernel's own part of the module, and where its instructions are in it."""
        if self._whole:
            return self._module, {each.index: each.index for each in self._module.instructions}
        if kernel not in self._parts:
            self._parts[kernel] = own_part(self._module, kernel)
        return self._parts[kernel]

    def of(self, kernel: str, dynamic_shared_bytes: int) -> Program:
        """Return a kernel with so much dynamic shared memory, decoded; raises as `decode` does."""
        key = kernel, dynamic_shared_bytes
        if key not in self._decoded:
            self._decoded[key] = decode(self.part(kernel)[0], *key, self._global_addresses)
        return self._decoded[key]


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
    shared_variables: tuple[Buffer, ...]
    """Where each lies among them."""
    local_bytes: int
    """For each thread: local variables and arguments of functions."""
    stacked: bool
    """Calls make frames."""
    functions: NDArray[np.void]
    """encoding.FUNCTION, where calls make frames."""
    global_atomics: bool
    joins_blocks: bool
    """Its blocks may wait for each other: they run in one thread."""
    polls: bool
    """It looks at global memory that others may change meanwhile: its blocks may wait."""
    partial_barriers: bool
    """Barriers may join some warps of a block only."""
    answered: tuple[int, ...]
    """Places of its atomics on global memory whose answers are read, ascending."""
    may_wait: bool
    """A loop looks at global memory in a way that sees what other blocks write meanwhile."""


def decode(
    module: Module, kernel: str, dynamic_shared_bytes: int, global_addresses: Mapping[str, int]
) -> Program:
    """Decode a kernel and every function it may call.

    Raises:
        KeyError: the module has no such kernel.
        UnsupportedInstruction: an instruction, named with its source line, is not known.
    """
    function = module.functions[kernel]
    _refuse_clusters(kernel, function.limits)
    frame = Frame(module, function, dynamic_shared_bytes, global_addresses)
    decoded: dict[int, Row] = {}
    for reached in frame.functions:
        for instruction in frame.code(reached):
            decoded[instruction.index] = _decode_one(frame, instruction)
    functions = calls.function_table(frame)
    constant_offset = -(-frame.register_bytes // 64) * 64
    rows = _table(len(module.instructions), decoded, constant_offset)
    _mark_guesses(rows, bytes(frame.constants), constant_offset)
    operands = np.array(frame.operands or [0], dtype=np.int32)
    _mark_copies(rows, operands)
    tagged = operands >= CONSTANT_TAG
    operands[tagged] += constant_offset - CONSTANT_TAG
    atomic = rows["opcode"] == Op.ATOMIC
    beyond = rows["space"] != Space.SHARED
    strong = np.isin(rows["opcode"], (Op.LOAD, Op.STORE)) & (rows["flags"] & Flag.STRONG != 0)
    shared = atomic & beyond
    answered = sorted(each for each in atomics_read(module) if shared[each])
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
        shared_variables=_shared_variables(frame),
        local_bytes=frame.local_bytes,
        stacked=frame.stacked,
        functions=functions,
        global_atomics=bool(np.any(shared)),
        joins_blocks=bool(np.any((atomic | strong) & beyond)),
        polls=bool(np.any(strong & beyond & (rows["opcode"] == Op.LOAD))),
        partial_barriers=_partial_barriers(rows, atomic | strong, constant_offset),
        answered=tuple(answered),
        may_wait=_may_wait(rows, answered),
    )


def _may_wait(rows: NDArray[np.void], answered: Sequence[int]) -> bool:
    """Say whether what is read in a loop may change meanwhile; an atomic's answer, where it is."""
    looks = (rows["opcode"] == Op.LOAD) & ((rows["flags"] & Flag.STRONG) != 0)
    looks[list(answered)] = True
    if np.isin(rows["opcode"], (Op.CALL, Op.CALL_FRAME)).any():
        return bool(looks.any())
    back = (rows["opcode"] == Op.BRANCH) & (rows["target"] <= np.arange(len(rows)))
    return any(looks[rows["target"][at] : at + 1].any() for at in np.flatnonzero(back))


def _refuse_clusters(kernel: str, limits: Sequence[str]) -> None:
    """Refuse a kernel whose own text makes clusters of its blocks, whether or not it asks for its
    place in one: a cluster of one, which is a block, is none."""
    word, blocks = ".reqnctapercluster", 1
    if word in limits:
        after = limits[limits.index(word) + 1 :]
        sizes = takewhile(lambda each: each == "," or each.isdigit(), after)
        blocks = prod(int(each) for each in sizes if each != ",")
    elif ".explicitcluster" in limits:  # Of the size that a launch names.
        word, blocks = ".explicitcluster", 2
    if blocks > 1:
        raise UnsupportedInstruction(
            word, None, kernel,
            "thread block clusters: not simulated, this candidate needs a real GPU",
        )  # fmt: skip


def _partial_barriers(
    rows: NDArray[np.void], strong: NDArray[np.bool_], constant_offset: int
) -> bool:
    """Say whether warps of a block may wait for each other by more than the barrier of all."""
    opcode = rows["opcode"]
    if np.any(np.isin(opcode, (Op.BARRIER_ARRIVE, Op.MBARRIER, Op.COPY_ARRIVE))):
        return True
    barrier = np.isin(opcode, (Op.BARRIER, Op.BARRIER_REDUCE))
    numbers = np.unique(rows["source1"][barrier])
    by_register = np.any(numbers < constant_offset)
    if np.any(barrier & (rows["source2"] >= 0)) or len(numbers) > 1 or by_register:
        return True
    fenced = np.any(opcode == Op.FENCE) or np.any(rows["flags"][strong] & Flag.RELEASE)
    return bool(fenced and np.any(strong & np.isin(rows["space"], (Space.SHARED, Space.GENERIC))))


def _mark_guesses(rows: NDArray[np.void], constants: bytes, constant_offset: int) -> None:
    """Flag the loads of `old = *p; do ... atomicCAS(p, old, ...)`, as the programming guide has it.

    The address says that load and compare-and-swap mean the same place: one register, or one
    variable that a register was set to.
    """
    known = {}
    for row in rows[(rows["opcode"] == Op.MOVE) & (rows["source0"] >= constant_offset)]:
        at, width = int(row["source0"]) - constant_offset, int(row["destination_width"])
        known[int(row["destination"])] = int.from_bytes(constants[at : at + width], "little")

    def place(row: np.void) -> tuple[int, int, int]:
        base, offset = int(row["source0"]), int(row["immediate"])
        fixed = base in known
        return int(row["space"]), -1 if fixed else base, offset + known.get(base, 0)

    swaps = (rows["opcode"] == Op.ATOMIC) & (rows["target"] == Atomic.CAS)
    swapped = {place(row) for row in rows[swaps]}
    for index in np.flatnonzero(rows["opcode"] == Op.LOAD) if swapped else ():
        if place(rows[index]) in swapped:
            rows["flags"][index] |= Flag.GUESS


def _mark_copies(rows: NDArray[np.void], operands: NDArray[np.int32]) -> None:
    """Flag the loads whose values go nowhere but into stores, by way of moves and selections.

    `target` of a vector load says which of its elements nobody reads.
    """
    opcode = rows["opcode"]
    moves = np.isin(opcode, (Op.MOVE, Op.SELECT))
    used = {int(register) for register in rows["guard"]}
    for name in _REGISTER_FIELDS:
        used |= set(rows[name][~moves].tolist())
    elsewhere = np.ones(len(operands), dtype=bool)
    for row in rows[np.isin(opcode, (Op.LOAD, Op.STORE))]:
        elsewhere[row["operands"] : row["operands"] + 2 * row["count"]] = False
    used |= set(operands[elsewhere].tolist())
    used.discard(-1)
    stored: set[int] = set()
    for row in rows[opcode == Op.STORE]:
        stored |= set(operands[row["operands"] : row["operands"] + 2 * row["count"] : 2].tolist())
    moved = {int(r) for name in ("source0", "source1") for r in rows[name][moves]}
    read = used | stored | moved
    flows = [(int(r["destination"]), {int(r["source0"]), int(r["source1"])}) for r in rows[moves]]
    reached = True
    while reached:
        passed = [sources for target, sources in flows if target in used and sources - used]
        reached = bool(passed)
        used.update(*passed)
    for index in np.flatnonzero(opcode == Op.LOAD):
        first, count = int(rows["operands"][index]), int(rows["count"][index])
        results = operands[first : first + 2 * count : 2].tolist()
        if used.isdisjoint(results):
            rows["flags"][index] |= Flag.COPY
        if count > 1:
            rows["target"][index] = sum(
                1 << place for place, result in enumerate(results) if result not in read
            )


def _shared_variables(frame: Frame) -> tuple[Buffer, ...]:
    variables = [*frame.module.variables.values()]
    for function in frame.functions:
        variables += function.variables.values()
    sizes = {variable.name: variable.size for variable in variables}
    return tuple(
        Buffer(short_name(name), start, sizes.get(name) or frame.dynamic_shared_bytes)
        for name, start in frame.shared_offsets.items()
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
    """Decode branches, calls, fences and hints; refuse by name what needs a real GPU."""
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
        return calls.give_back(frame, instruction)
    if opcode == "call":
        return calls.call(frame, instruction)
    if opcode in _HARDWARE:
        raise frame.needs_hardware(instruction, _HARDWARE[opcode])
    if opcode in ("st", "red") and "async" in modifiers:
        raise frame.needs_hardware(instruction, f"thread block clusters ({opcode}.async)")
    if opcode in ("membar", "fence"):
        if any("tensormap" in modifier for modifier in modifiers):
            raise frame.needs_hardware(instruction, "TMA (fence.proxy.tensormap)")
        # Those of proxies name no scope: they order nothing between threads.
        wide = modifiers & {"gl", "gpu", "sys"}
        return {**new_row(Op.FENCE), "flags": 0 if wide else Flag.NARROW}
    if opcode == "nanosleep":
        return new_row(Op.PAUSE)
    if opcode in ("trap", "brkpt"):
        return new_row(Op.TRAP)
    if opcode in _HINTS:
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

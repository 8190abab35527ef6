"""Executions of each machine basic block, from the executions of the PTX it was made of.

A machine instruction that stands for one PTX instruction (a load, a product, a barrier) says how
often its block ran: as often as the PTX instruction, or that over its copies where ptxas unrolled
the loop. All others, which ptxas adds, moves or predicates, run as often as their block. What it
lifted out of a loop says how often that is entered.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ..ptx.loops import Loop
from ..ptx.records import TYPE_BYTES, Instruction, elements_of
from .listing import MachineBlock, MachineCode, MachineInstruction
from .loops import lifted_out_of, machine_loops
from .mix import width_of

_SLOW = re.compile(r"^\$__internal_\d+_\$__cuda_\w*(?:slowpath|mediumpath|_f64_full)")
"""Functions that ptxas adds, under its own names: a candidate's begin with those of its kernel."""
_PRODUCT = re.compile(r"^[HIDB]MMA\.(8|16)8(4|8|16|32|64|128|256)\b")
_SPECIAL = ("ex2", "lg2", "rcp", "rsqrt", "sin", "cos", "tanh")
_FIXED: dict[str, tuple[str, ...]] = {
    "bar": ("BAR",), "barrier": ("BAR",), "shfl": ("SHFL",), "vote": ("VOTE", "VOTEU"),
    "match": ("MATCH",), "redux": ("REDUX",), "atom": ("ATOM", "ATOMG", "ATOMS", "RED", "REDG"),
    "red": ("RED", "REDG", "ATOM", "ATOMG", "ATOMS"), "ldmatrix": ("LDSM",),
    "stmatrix": ("STSM",), "mma": ("HMMA", "IMMA", "DMMA", "BMMA"),
}  # fmt: skip
_FLOAT: dict[str, tuple[str, ...]] = {
    "f32": ("FFMA", "FADD", "FMUL"), "f64": ("DFMA", "DADD", "DMUL"),
    "f16": ("HFMA2", "HADD2", "HMUL2"), "f16x2": ("HFMA2", "HADD2", "HMUL2"),
    "bf16": ("HFMA2", "HADD2", "HMUL2"), "bf16x2": ("HFMA2", "HADD2", "HMUL2"),
}  # fmt: skip
SLOW_SHARE = 0.29
"""Of the function that is called for odd operands, how much one call goes through: 29 of the 100
instructions of a division's for a zero or an infinity (for a number near the end 60)."""
FIRM, FAIR, WEAK = 0, 1, 2
"""What evidence is worth: it stays where it stood; it may be hoisted; it may be anything."""


@dataclass(frozen=True)
class _Evidence:
    executions: float
    worth: int
    predicated: bool
    part: float
    """One over the instructions of the block that say this together."""


def is_slow_path(function: str) -> bool:
    """Say whether a function of machine code is one for odd operands, by its name."""
    return bool(_SLOW.search(function))


def is_of_ptxas(function: str) -> bool:
    """Say whether a function of machine code is one that ptxas added: a division, a root."""
    return function.startswith("$__internal_")


def block_executions(
    code: MachineCode,
    statements: Mapping[int, Instruction],
    executed: Mapping[int, float],
    loops: Mapping[int, Sequence[Loop]],
    warps: float,
    unsure: Container[int] = (),
    slow: Mapping[int, float] | None = None,
) -> list[float]:
    """Return how many warps went through each block.

    Args:
        code: the kernel's machine code.
        statements: the PTX instruction of each statement number.
        executed: executions of each statement, by warps.
        loops: the PTX loops around each statement, the innermost first.
        warps: warps that start the kernel.
        unsure: statements whose instructions stand for others as well (shares.py).
        slow: executions of divisions, roots and reciprocals in which a lane has odd operands.
    """
    dead = _never(code, statements)
    evidence = _evidence(code, statements, executed, loops, unsure, dead)
    counts: list[float | None] = [_judge(found) for found in evidence]
    called = _called(code)
    for index, block in enumerate(code.blocks):
        if index in dead:
            counts[index] = 0.0
        elif block.function in called and counts[index] is None:
            counts[index] = -1.0
    found = _flow(code, counts, evidence, called, warps)
    return _with_slow_paths(code, found, dead, slow) if slow else found


def _evidence(
    code: MachineCode,
    statements: Mapping[int, Instruction],
    executed: Mapping[int, float],
    loops: Mapping[int, Sequence[Loop]],
    unsure: Container[int],
    dead: Container[int],
) -> list[list[_Evidence]]:
    machine = machine_loops(code, loops)
    groups: dict[tuple[int, str], list[tuple[int, MachineInstruction]]] = defaultdict(list)
    for place, block in enumerate(code.blocks):
        for instruction in block.instructions:
            ptx = statements.get(instruction.statement)
            if ptx is None or place in dead or is_of_ptxas(block.function):
                continue
            expected, _ = _expected(ptx)
            name = "=" if instruction.base in expected else instruction.base
            groups[instruction.statement, name].append((place, instruction))
    found: list[list[_Evidence]] = [[] for _ in code.blocks]
    for (statement, name), members in groups.items():
        _, worth = _expected(statements[statement])
        if statement in unsure:
            worth = WEAK
        around = loops.get(statement, ())
        count, entered = executed.get(statement, 0.0), around[0].entries if around else 0.0
        copies: dict[int, float] = defaultdict(float)
        together: dict[int, int] = defaultdict(int)
        for place, instruction in members:
            copies[place] += _share_of(statements[statement], instruction)
            together[place] += 1
        lifted = {place: lifted_out_of(code.blocks[place], around, machine) for place in copies}
        left = {place: loop.entries for place, loop in lifted.items() if loop is not None}
        split = left if len(left) == len(copies) else None
        if split is not None:
            worth = WEAK
        else:
            split = _split(code.blocks, copies, count, entered)
        if split is None:
            # Copies of what ptxas doubled share the count; parts of one expansion all have it.
            shares = dict.fromkeys(copies, sum(copies.values())) if name == "=" else copies
            split, worth = {place: count / shares[place] for place in copies}, WEAK
        for place, instruction in members:
            found[place].append(
                _Evidence(
                    split[place],
                    worth if name == "=" else WEAK,
                    bool(instruction.predicate),
                    1 / together[place],
                )
            )
    return found


def _expected(ptx: Instruction) -> tuple[tuple[str, ...], int]:
    """Return the machine opcodes of which one stands for this PTX instruction, and its worth."""
    opcode, modifiers = ptx.opcode, ptx.modifiers
    if opcode in ("bar", "barrier") and "warp" in modifiers:
        return (), WEAK
    if opcode in _FIXED:
        return _FIXED[opcode], FIRM
    spaces = {word.split("::")[0] for word in modifiers}
    if opcode == "ld" and "const" in spaces:
        return ("LDC",), FAIR
    if opcode == "ld" and "param" not in spaces:
        if "shared" in spaces:
            return ("LDS",), FAIR
        return (("LDL",) if "local" in spaces else ("LDG", "LD")), FAIR
    if opcode == "st" and "param" not in spaces:
        if "shared" in spaces:
            return ("STS",), FIRM
        return (("STL",) if "local" in spaces else ("STG", "ST")), FIRM
    if opcode == "cp" and "async" in spaces and "commit_group" not in spaces:
        return ("LDGSTS",), FIRM
    if opcode == "wmma":
        load, store = "load" in modifiers, "store" in modifiers
        if load or store:
            return ("LDG", "LD", "LDS") if load else ("STG", "ST", "STS"), WEAK
        return ("HMMA", "IMMA", "DMMA", "BMMA"), FIRM
    kind = modifiers[-1] if modifiers else ""
    if opcode in ("add", "sub", "mul", "fma", "mad") and kind in _FLOAT:
        return _FLOAT[kind], FAIR
    if opcode in _SPECIAL and kind in ("f32", "f16", "f16x2"):
        return ("MUFU",), FAIR
    if opcode == "cvt" and len(modifiers) >= 2:
        return ("I2F", "F2I", "F2F", "FRND", "I2FP", "F2FP"), FAIR
    return (), WEAK


def _share_of(ptx: Instruction, machine: MachineInstruction) -> float:
    """Return which part of a PTX instruction a machine instruction does.

    ptxas splits matrix products, and reads of more than a word of constant memory.
    """
    if ptx.opcode == "ld" and "const" in ptx.modifiers:
        size = TYPE_BYTES.get(ptx.modifiers[-1], 4) * elements_of(ptx)
        return min(1.0, 4 * width_of(machine) / size)
    if ptx.opcode not in ("mma", "wmma"):
        return 1.0
    whole = re.search(r"m(\d+)n(\d+)k(\d+)", ".".join(ptx.modifiers))
    part = _PRODUCT.search(machine.opcode)
    if not whole or not part:
        return 1.0
    # 16816 is a product of 16 x 8 x 16, 884 one of 8 x 8 x 4.
    rows, inner = part.groups()
    return int(rows) * 8 * int(inner) / math.prod(map(int, whole.groups()))


def _split(
    blocks: Sequence[MachineBlock], copies: Mapping[int, float], count: float, entered: float
) -> dict[int, float] | None:
    """Share the executions of one PTX instruction among its copies; None where nothing says how.

    An unrolled loop takes whole turns of its copies first; a block of fewer copies behind it,
    executed at most once, then takes what it can, and the last block takes the rest.
    """
    if len(copies) == 1:
        ((place, number),) = copies.items()
        return {place: count / number}
    if entered <= 0:
        return {place: 0.0 for place in copies} if count <= 0 else None
    turns = count / entered
    whole = abs(turns - round(turns)) < 1e-3
    deepest = max(len(blocks[place].loops) for place in copies)
    order = sorted(copies, key=lambda place: (-copies[place], place))
    if copies[order[0]] == copies[order[-1]]:
        return None
    left, found = turns, {}
    for place in order:
        number = copies[place]
        loops = len(blocks[place].loops) == deepest
        if place == order[-1]:
            taken = max(left, 0.0) / number
        elif whole:
            taken = float(int(left / number + 1e-6)) if loops else float(left + 1e-6 >= number)
        elif loops:
            taken = max(0.0, (left - (number - 1) / 2) / number)
        else:
            taken = min(0.5, left / number)
        left -= taken * number
        found[place] = taken * entered
    return found


def _judge(evidence: Sequence[_Evidence]) -> float | None:
    """Return what the best evidence of a block says; None where there is only weak evidence."""
    for worth in (FIRM, FAIR):
        best = [each.executions for each in evidence
                if each.worth == worth and not each.predicated]  # fmt: skip
        if best:
            # Several PTX blocks may be one machine block: the largest count is the block's own.
            return median(best) if worth == FAIR else max(best)
    return None


def _raise_to_followers(
    code: MachineCode, counts: Sequence[float | None], found: list[float]
) -> None:
    """Raise blocks without evidence to what their followers can only have had from them."""
    for index in reversed(range(len(found))):
        block = code.blocks[index]
        if counts[index] is not None:
            continue
        for to in block.successors:
            if to <= index or code.blocks[to].loops != block.loops:
                continue
            others = (at for at in code.blocks[to].predecessors if at != index)
            missing = found[to] - sum(leaving(code, found, at, to) for at in others)
            found[index] = max(found[index], missing)


def leaving(code: MachineCode, found: Sequence[float], at: int, to: int) -> float:
    """Return the most that can go from one block to another: a loop is left once an entry."""
    left = [span for span in code.blocks[at].loops if not span[0] <= to <= span[1]]
    if not left:
        return found[at]
    first, last = left[-1]
    outside = [place for place in code.blocks[first].predecessors if not first <= place <= last]
    return min(found[at], sum(leaving(code, found, place, first) for place in outside))


def _commonest(evidence: Sequence[_Evidence]) -> float:
    """Return the count that most agree on within 2 %; the largest of several, 0 of none."""
    best, agreed = 0.0, 0.0
    for value in sorted({each.executions for each in evidence}, reverse=True):
        near = sum(
            each.part for each in evidence if abs(each.executions - value) <= 0.02 * value
        )
        if near > agreed + 1e-9:
            best, agreed = value, near
    return best


def _only_from_one(code: MachineCode, index: int) -> bool:
    before = code.blocks[index].predecessors
    return len(before) == 1 and _has_one_way(code.blocks[before[0]])


def _has_one_way(block: MachineBlock) -> bool:
    """Say whether all that goes through a block goes on to one other; some may leave the kernel."""
    return len(block.successors) == 1 and block.instructions[-1].base not in ("EXIT", "RET")


def _never(code: MachineCode, statements: Mapping[int, Instruction]) -> set[int]:
    """Return the blocks that nothing reaches but a slow path: for odd operands, or a lane at a
    time where a warp comes to a shuffle or vote in pieces.
    """

    def is_slow(each: MachineInstruction) -> bool:
        if each.base == "CALL":
            return is_slow_path(each.target)
        if each.base == "ENDCOLLECTIVE" or "COLLECTIVE" in each.opcode:
            return True
        # What an atomic on a generic address does where that turns out to be no global one.
        ptx = statements.get(each.statement)
        return each.base == "QSPC" and ptx is not None and ptx.opcode != "isspacep"

    slow = {
        index
        for index, block in enumerate(code.blocks)
        if is_slow_path(block.function) or any(map(is_slow, block.instructions))
    }
    reached: set[int] = set()
    ahead = [0, *(index for index, block in enumerate(code.blocks) if block.function)]
    while ahead:
        index = ahead.pop()
        if index not in reached and index not in slow:
            reached.add(index)
            ahead += code.blocks[index].successors
    return set(range(len(code.blocks))) - reached


def _called(code: MachineCode) -> set[str]:
    """Return the functions inside the section that the kernel calls on its ordinary way."""
    return {
        instruction.target
        for block in code.blocks
        for instruction in block.instructions
        if instruction.base == "CALL" and not is_slow_path(instruction.target)
    }


def _with_slow_paths(
    code: MachineCode, found: list[float], dead: Container[int], slow: Mapping[int, float]
) -> list[float]:
    """Add the calls of slow paths, what each goes through of the called function, and the way back.

    A statement's call stands in one block for each copy of the statement, which share its count.
    """
    places: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for index, block in enumerate(code.blocks):
        for each in block.instructions:
            if each.base == "CALL" and is_slow_path(each.target) and slow.get(each.statement):
                places[each.statement].append((index, each.target))
    calls: dict[str, float] = defaultdict(float)
    for statement, members in places.items():
        for index, target in members:
            taken = slow[statement] / len(members)
            calls[target] += taken
            back: list[int] = []
            while index in dead and index not in back:
                back.append(index)
                found[index] += taken
                ways = code.blocks[index].successors
                index = ways[0] if len(ways) == 1 else -1
    return [count + SLOW_SHARE * calls.get(block.function, 0.0)
            for count, block in zip(found, code.blocks, strict=True)]  # fmt: skip


def _flow(
    code: MachineCode,
    counts: list[float | None],
    evidence: Sequence[Sequence[_Evidence]],
    called: set[str],
    warps: float,
) -> list[float]:
    """Fill in blocks without evidence from those that lead to them, in address order."""
    found: list[float] = []
    for index, block in enumerate(code.blocks):
        count = counts[index]
        ahead = [known for to in block.successors if (known := counts[to]) is not None]
        arriving = [
            leaving(code, found, at, index) for at in block.predecessors if at < index
        ]
        if count is None:
            weak = [each for each in evidence[index] if not each.predicated]
            limit = max(arriving, default=warps if index == 0 else 0.0)
            if block.loop is not None and block.loop[0] == index:
                own = [
                    place
                    for place in range(block.loop[0], block.loop[1] + 1)
                    if code.blocks[place].loop == block.loop
                ]
                inside = [each for place in own if (each := counts[place]) is not None]
                weak = [each for place in own for each in evidence[place] if not each.predicated]
                count = max(limit, *inside) if inside else max(limit, _commonest(weak))
            elif index == 0 or _only_from_one(code, index):
                count = limit
            elif weak:
                count = min(limit, _commonest(weak)) if arriving else _commonest(weak)
            else:
                count = limit
            if ahead and ahead[0] >= 0 and _has_one_way(block):
                count = min(count, ahead[0])  # all that leaves it arrives there
        elif count < 0:
            count = 0.0
        found.append(count)
    _raise_to_followers(code, counts, found)
    calls: dict[str, float] = defaultdict(float)
    for index, block in enumerate(code.blocks):
        for instruction in block.instructions:
            if instruction.base == "CALL" and instruction.target in called:
                calls[instruction.target] += found[index]
    return [
        calls.get(block.function, 0.0)
        if block.function and (counts[index] or 0.0) <= 0.0 else found[index]
        for index, block in enumerate(code.blocks)
    ]  # fmt: skip

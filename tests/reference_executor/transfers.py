"""Loads, stores, atomics and asynchronous copies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from kernelblaster.harness.simt.ptx.records import Address, Immediate, Instruction, Register, Vector

from .counting import constant_cost, copy_cost
from .formats import FORMATS, add, decode, encode
from .state import Block, Warp, window_of
from .words import TYPE_BITS, Words, integer, low, words_of

_SPACES = ("global", "const", "shared", "local", "param")
_OPERATIONS = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
_HIGHEST = {"v2": 2, "v4": 4, "v8": 8}


def space_named(words: Words) -> str:
    """Return the state space that an instruction names, or nothing for generic addresses."""
    for word in words.modifiers:
        if word.split("::")[0] in _SPACES:
            return word.split("::")[0]
    return ""


def lane_addresses(
    block: Block, warp: Warp, operand: object, lanes: list[int], space: str
) -> dict[int, tuple[str, int]]:
    """Return the space and the address within it for each lane."""
    assert isinstance(operand, Address)
    base, offset = operand.base, operand.offset
    declared = block.layout.places.get(getattr(base, "name", ""), ("", 0))[0]
    width = TYPE_BITS[base.type] if isinstance(base, Register) else 64
    starts = block.read(warp, base).tolist()
    found = {}
    for lane in lanes:
        address = low(starts[lane] + offset, width)
        if declared in ("shared", "local", "param"):
            found[lane] = (declared, address)  # a symbol is an address within its own space
        elif space in ("", "param"):
            # Parameter space reaches registers only as the kernel's own parameters.
            found[lane] = (space, address) if space else window_of(address)
        else:
            found[lane] = ("global" if space == "const" else space, address)
    return found


def _by_space(
    block: Block, warp: Warp, operand: object, lanes: list[int], space: str
) -> dict[str, dict[int, int]]:
    """Sort the lanes by the space they access: each space is a request of its own."""
    groups: dict[str, dict[int, int]] = defaultdict(dict)
    for lane, (where, address) in lane_addresses(block, warp, operand, lanes, space).items():
        groups[where][lane] = address
    return groups


def _items(operand: object) -> tuple[object, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def access(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    """Execute ld, ldu and st."""
    words = words_of(instruction)
    storing = words.opcode == "st"
    memory, value = instruction.operands if storing else instruction.operands[::-1]
    space = space_named(words)
    count = next((_HIGHEST[w] for w in words.modifiers if w in _HIGHEST), 1)
    size = words.bits // 8
    items = _items(value)
    for where, addresses in _by_space(block, warp, memory, lanes, space).items():
        here = list(addresses)
        if space in ("param", "const"):  # those have a way of their own to the core
            if where != "local" and isinstance(memory.base, Register):  # type: ignore[attr-defined]
                block.counts[instruction.index].update(constant_cost(list(addresses.values())))
        else:
            kind = "store" if storing else "load"
            block.count(
                instruction.index, where, here, list(addresses.values()), count * size, kind
            )
        for place, item in enumerate(items):
            if storing:
                source = block.read(warp, item, words.type).tolist()  # type: ignore[arg-type]
                for lane, address in addresses.items():
                    thread = 32 * warp.number + lane
                    block.store(where, thread, address + place * size, size, source[lane])
                continue
            loaded = [
                integer(block.load(where, 32 * warp.number + lane, a + place * size, size),
                        words.type if words.type[0] == "s" else f"b{words.bits}")
                for lane, a in addresses.items()
            ]  # fmt: skip
            block.write(warp, item, here, loaded)  # type: ignore[arg-type]


def combine(operation: str, type_name: str) -> Callable[..., int]:
    """Return what a read-modify-write operation leaves, given the old value and the operands."""
    bits = TYPE_BITS[type_name]

    def total(old: int, value: int) -> int:
        if type_name.endswith("x2"):
            half = combine("add", type_name.removesuffix("x2"))
            return sum(half(low(old >> s, 16), low(value >> s, 16)) << s for s in (0, 16))
        form = FORMATS.get(type_name)
        if form is None:
            return low(old + value, bits)
        return encode(form, add(decode(form, old), decode(form, value), "rn"))

    def smaller(old: int, value: int) -> int:
        return min(old, value, key=lambda v: integer(v, type_name))

    def larger(old: int, value: int) -> int:
        return max(old, value, key=lambda v: integer(v, type_name))

    return {
        "add": total, "min": smaller, "max": larger,
        "and": lambda old, value: old & value, "or": lambda old, value: old | value,
        "xor": lambda old, value: old ^ value, "exch": lambda old, value: value,
        "cas": lambda old, value, new: new if old == value else old,
        "inc": lambda old, value: 0 if old >= value else old + 1,
        "dec": lambda old, value: value if old == 0 or old > value else old - 1,
    }[operation]  # fmt: skip


def atomic(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    """Execute atom and red, the lanes one after the other in their order."""
    words = words_of(instruction)
    operands = list(instruction.operands)
    result = operands.pop(0) if words.opcode == "atom" else None
    operation = next(w for w in words.modifiers if w in _OPERATIONS)
    size, update = words.bits // 8, combine(operation, words.type)
    values = [block.read(warp, o, words.type).tolist() for o in operands[1:]]
    for where, addresses in _by_space(block, warp, operands[0], lanes, space_named(words)).items():
        here, old = list(addresses), []
        block.count(
            instruction.index, where, here, list(addresses.values()), size, "atomic"
        )
        for lane, address in addresses.items():
            before = block.load(where, 32 * warp.number + lane, address, size)
            new = update(before, *(low(v[lane], words.bits) for v in values))
            block.store(where, 32 * warp.number + lane, address, size, new)
            old.append(before)
        if result is not None:
            block.write(warp, result, here, old)


def copy(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    """Execute cp.async at once: a program that waits as it should cannot tell."""
    words = words_of(instruction)
    if words.has("commit_group", "wait_group", "wait_all"):
        return
    target, source, size_operand, *rest = instruction.operands
    assert isinstance(size_operand, Immediate)
    size = size_operand.bits
    amounts = [size] * 32
    for operand in rest:
        values = block.read(warp, operand).tolist()
        if isinstance(operand, Register) and operand.type == "pred":  # ignore-src
            amounts = [0 if ignored else size for ignored in values]
        else:
            amounts = [min(value, size) for value in values]
    sources = lane_addresses(block, warp, source, lanes, "global")
    targets = lane_addresses(block, warp, target, lanes, "shared")
    reading = [lane for lane in lanes if amounts[lane]]
    if reading:
        addresses = [sources[lane][1] for lane in reading]
        block.count(instruction.index, "global", reading, addresses, size, "load")
        asked = sum(amounts[lane] for lane in reading)
        block.counts[instruction.index]["bytes"] += asked - size * len(reading)
    block.count(instruction.index, "shared", lanes, [targets[n][1] for n in lanes], size, "store")
    if words.has("cg"):
        block.counts[instruction.index].update(copy_cost(
            [sources[lane][1] for lane in reading], [targets[lane][1] for lane in reading]
        ))  # fmt: skip
    for lane in lanes:
        for byte in range(size):
            value = 0
            if byte < amounts[lane]:
                value = block.load("global", 0, sources[lane][1] + byte, 1)
            block.store("shared", 0, targets[lane][1] + byte, 1, value)


RULES: dict[str, Callable[[Block, Warp, Instruction, list[int]], None]] = {
    "ld": access, "ldu": access, "st": access, "atom": atomic, "red": atomic, "cp": copy,
}  # fmt: skip
"""By opcode."""

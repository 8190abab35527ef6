"""Instructions in which the lanes of a warp exchange values: shfl, vote, match, redux."""

from __future__ import annotations

from collections.abc import Callable

from kernelblaster.harness.simt.ptx.records import Instruction, Pair

from .state import Block, Warp, window_of
from .transfers import combine
from .words import low, words_of


def _two(operand: object) -> tuple[object, object]:
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)


def _shfl(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    result, *sources = instruction.operands
    value, b, c = (block.read(warp, o, "b32").tolist() for o in sources[:3])
    mode, got, valid = instruction.modifiers[1], [], []
    for lane in lanes:
        distance, bound, segment = b[lane] & 31, c[lane] & 31, c[lane] >> 8 & 31
        highest = lane & segment | bound & ~segment
        lowest = lane & segment
        if mode == "up":
            source = lane - distance
            inside = source >= highest
        else:
            source = {
                "down": lane + distance, "bfly": lane ^ distance,
                "idx": lowest | distance & ~segment,
            }[mode]  # fmt: skip
            inside = source <= highest
        got.append(value[source if inside else lane])
        valid.append(int(inside))
    first, second = _two(result)
    block.write(warp, first, lanes, got)  # type: ignore[arg-type]
    block.write(warp, second, lanes, valid)  # type: ignore[arg-type]


def _vote(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    result, value, *_ = instruction.operands
    votes = block.read(warp, value, "pred").tolist()
    cast = [bool(votes[lane]) for lane in lanes]
    outcome = {
        "ballot": sum(1 << lane for lane, yes in zip(lanes, cast, strict=True) if yes),
        "any": int(any(cast)), "all": int(all(cast)), "uni": int(len(set(cast)) == 1),
    }[words_of(instruction).one_of("ballot", "any", "all", "uni")]  # fmt: skip
    block.write(warp, result, lanes, [outcome] * len(lanes))


def _activemask(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    mask = sum(1 << lane for lane in lanes)
    block.write(warp, instruction.operands[0], lanes, [mask] * len(lanes))


def _redux(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    result, value, *_ = instruction.operands
    words = words_of(instruction)
    update = combine(words.one_of("add", "min", "max", "and", "or", "xor"), words.type)
    values = block.read(warp, value, words.type).tolist()
    total = values[lanes[0]]
    for lane in lanes[1:]:
        total = update(total, values[lane])
    block.write(warp, result, lanes, [total] * len(lanes))


def _match(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    result, value, *_ = instruction.operands
    words = words_of(instruction)
    values = [low(v, words.bits) for v in block.read(warp, value, words.type).tolist()]
    everyone = sum(1 << lane for lane in lanes)
    equal = [sum(1 << other for other in lanes if values[other] == values[n]) for n in lanes]
    same = all(mask == everyone for mask in equal)
    first, second = _two(result)
    masks = equal if words.has("any") else [everyone if same else 0] * len(lanes)
    block.write(warp, first, lanes, masks)  # type: ignore[arg-type]
    block.write(warp, second, lanes, [int(same)] * len(lanes))  # type: ignore[arg-type]


def _elect(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    """Any lane may lead; the core chooses the lowest."""
    first, second = _two(instruction.operands[0])
    block.write(warp, first, lanes, [lanes[0]] * len(lanes))  # type: ignore[arg-type]
    leads = [int(lane == lanes[0]) for lane in lanes]
    block.write(warp, second, lanes, leads)  # type: ignore[arg-type]


def _isspacep(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    target, address = instruction.operands
    wanted = instruction.modifiers[0].split("::")[0]
    addresses = block.read(warp, address, "b64").tolist()
    inside = [int(window_of(addresses[lane])[0] == wanted) for lane in lanes]
    block.write(warp, target, lanes, inside)


RULES: dict[str, Callable[[Block, Warp, Instruction, list[int]], None]] = {
    "shfl": _shfl, "vote": _vote, "activemask": _activemask, "redux": _redux, "match": _match,
    "elect": _elect, "isspacep": _isspacep,
}  # fmt: skip
"""By opcode."""

"""ldmatrix, mma.sync and wmma: fragments as drawn in chapter 9.7.14 of the PTX ISA."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kernelblaster.harness.simt.ptx.records import Instruction, Operand, Vector

from .formats import FORMATS, encode
from .state import LANES, Block, Warp
from .transfers import lane_addresses, space_named
from .words import Words, low, words_of

Matrix = NDArray[np.float64]


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _shape(words: Words) -> tuple[int, int, int]:
    found = next(m for w in words.modifiers if (m := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", w)))
    return int(found[1]), int(found[2]), int(found[3])


def value_of(type_name: str, bits: int) -> float:
    """Return the number of an element; tf32 does not see its low 13 bits."""
    if type_name == "f16":
        return float(np.uint16(bits).view(np.float16))
    if type_name == "bf16":
        return float(np.uint32(bits << 16).view(np.float32))
    if type_name == "tf32":
        bits &= ~0x1FFF
    return float(np.uint32(bits).view(np.float32))


def bits_of(type_name: str, value: float) -> int:
    """Return the element nearest to a number."""
    if type_name == "f16":
        return int(np.float64(value).astype(np.float16).view(np.uint16))
    single = np.float64(value).astype(np.float32).view(np.uint32)
    if type_name == "bf16":
        from .formats import decode

        return encode(FORMATS["bf16"], decode(FORMATS["f32"], int(single)))
    return int(single)


def _ldmatrix(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    words = words_of(instruction)
    count = int(words.one_of("x1", "x2", "x4")[1])
    result, memory = instruction.operands
    rows = list(range(8 * count))  # lane i names row i % 8 of matrix i / 8
    found = lane_addresses(block, warp, memory, rows, space_named(words))
    addresses = [found[row][1] for row in rows]
    block.count(instruction.index, "shared", rows, addresses, 16, "load")
    for matrix, item in enumerate(_items(result)):
        values = []
        for lane in range(LANES):
            parts = []
            for half in (0, 1):
                row, column = lane // 4, 2 * (lane % 4) + half
                if words.has("trans"):
                    row, column = column, row
                parts.append(block.load("shared", 0, addresses[8 * matrix + row] + 2 * column, 2))
            values.append(parts[0] | parts[1] << 16)
        block.write(warp, item, range(LANES), values)


def _stmatrix(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    words = words_of(instruction)
    memory, source = instruction.operands
    rows = list(range(8 * int(words.one_of("x1", "x2", "x4")[1])))
    found = lane_addresses(block, warp, memory, rows, space_named(words))
    addresses = [found[row][1] for row in rows]
    block.count(instruction.index, "shared", rows, addresses, 16, "store")
    for matrix, item in enumerate(_items(source)):
        register = block.read(warp, item).tolist()
        for lane, half in ((n, h) for n in range(LANES) for h in (0, 1)):
            row, column = lane // 4, 2 * (lane % 4) + half
            if words.has("trans"):
                row, column = column, row
            where = addresses[8 * matrix + row] + 2 * column
            block.store("shared", 0, where, 2, register[lane] >> 16 * half)


def _movmatrix(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    register = block.read(warp, instruction.operands[1]).tolist()
    values = []
    for lane in range(LANES):
        # Element (row, column) of the result is element (column, row) of the source.
        row, columns = lane // 4, (2 * (lane % 4), 2 * (lane % 4) + 1)
        holders = [(4 * column + row // 2, row % 2) for column in columns]
        parts = [low(register[holder] >> 16 * half, 16) for holder, half in holders]
        values.append(parts[0] | parts[1] << 16)
    block.write(warp, instruction.operands[0], range(LANES), values)


def _gather(
    block: Block, warp: Warp, operand: Operand, type_name: str,
    place: Callable[[int, int], tuple[int, int]], shape: tuple[int, int],
) -> Matrix:  # fmt: skip
    """Collect a matrix: element i of a lane lies at `place(lane, i)`."""
    matrix = np.full(shape, np.nan)
    per_register = 2 if type_name in ("f16", "bf16") else 1
    for number, item in enumerate(_items(operand)):
        register = block.read(warp, item).tolist()
        for lane in range(LANES):
            for part in range(per_register):
                bits = low(register[lane] >> 16 * part, 32 // per_register)
                at = place(lane, number * per_register + part)
                matrix[at] = value_of(type_name, bits)
    return matrix


def _scatter(
    block: Block, warp: Warp, operand: Operand, type_name: str,
    place: Callable[[int, int], tuple[int, int]], matrix: Matrix,
) -> None:  # fmt: skip
    per_register = 2 if type_name in ("f16", "bf16") else 1
    for number, item in enumerate(_items(operand)):
        values = []
        for lane in range(LANES):
            total = 0
            for part in range(per_register):
                at = place(lane, number * per_register + part)
                total |= bits_of(type_name, matrix[at]) << 16 * part
            values.append(total)
        block.write(warp, item, range(LANES), values)


def _mma(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    words = words_of(instruction)
    rows, columns, inner = _shape(words)
    assert (rows, columns) == (16, 8), "the shapes whose fragments are written down below"
    d_type, a_type, b_type, c_type = words.types
    single = a_type == "tf32"

    def a_place(lane: int, i: int) -> tuple[int, int]:
        group, member = lane // 4, lane % 4
        if single:
            return group + 8 * (i % 2), member + 4 * (i // 2)
        return group + 8 * (i // 2 % 2), 2 * member + i % 2 + 8 * (i // 4)

    def b_place(lane: int, i: int) -> tuple[int, int]:
        group, member = lane // 4, lane % 4
        return (member + 4 * i if single else 2 * member + i % 2 + 8 * (i // 2)), group

    def c_place(lane: int, i: int) -> tuple[int, int]:
        return lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2

    d, a, b, c = instruction.operands
    left = _gather(block, warp, a, a_type, a_place, (rows, inner))
    right = _gather(block, warp, b, b_type, b_place, (inner, columns))
    sums = _gather(block, warp, c, c_type, c_place, (rows, columns))
    _scatter(block, warp, d, d_type, c_place, left @ right + sums)


def _opaque(shape: tuple[int, int], slots: int) -> Callable[[int, int], tuple[int, int]]:
    """Return our own layout of a wmma fragment: row by row over the lanes, again where room is."""
    size = shape[0] * shape[1]

    def place(lane: int, i: int) -> tuple[int, int]:
        element = (lane * slots + i) % size
        return element // shape[1], element % shape[1]

    return place


def _fragment(operand: Operand, type_name: str, shape: tuple[int, int]) -> Callable[
    [int, int], tuple[int, int]
]:  # fmt: skip
    return _opaque(shape, len(_items(operand)) * (2 if type_name in ("f16", "bf16") else 1))


def _move(block: Block, warp: Warp, instruction: Instruction, words: Words) -> None:
    """Execute wmma.load and wmma.store.

    Memory is touched in tiles of eight lines by eight elements, two neighbours a lane, the tiles
    of one stripe of eight columns (of lines' elements) after the other: each is one request.
    """
    rows, columns, inner = _shape(words)
    kind = words.modifiers[1]
    shape = {"a": (rows, inner), "b": (inner, columns)}.get(kind, (rows, columns))
    loading = words.modifiers[0] == "load"
    first, second, *rest = instruction.operands
    fragment, memory = (first, second) if loading else (second, first)
    by_rows = words.has("row")
    lines, length = shape if by_rows else shape[::-1]
    stride = int(block.read(warp, rest[0])[0]) if rest else length
    space, origin = lane_addresses(block, warp, memory, [0], space_named(words))[0]
    size = 2 if words.type in ("f16", "bf16") else 4
    place = _fragment(fragment, words.type, shape)
    matrix = np.zeros(shape)
    if not loading:
        matrix = _gather(block, warp, fragment, words.type, place, shape)
    for stripe in range(0, length, 8):
        for tile in range(0, lines, 8):
            points = [(tile + lane // 4, stripe + 2 * (lane % 4)) for lane in range(LANES)]
            addresses = [origin + (line * stride + at) * size for line, at in points]
            verb = "load" if loading else "store"
            block.count(instruction.index, space, list(range(LANES)), addresses, 2 * size, verb)
            for (line, at), address in zip(points, addresses, strict=True):
                for half in (0, 1):
                    where = (line, at + half) if by_rows else (at + half, line)
                    spot = address + half * size
                    if loading:
                        matrix[where] = value_of(words.type, block.load(space, 0, spot, size))
                    else:
                        block.store(space, 0, spot, size, bits_of(words.type, matrix[where]))
    if loading:
        _scatter(block, warp, fragment, words.type, place, matrix)


def _wmma(block: Block, warp: Warp, instruction: Instruction, lanes: list[int]) -> None:
    words = words_of(instruction)
    if words.modifiers[0] != "mma":
        _move(block, warp, instruction, words)
        return
    rows, columns, inner = _shape(words)
    types = words.types
    if len(types) == 2:
        types = (types[0], "f16", "f16", types[1])
    d, a, b, c = instruction.operands
    shapes = ((rows, inner), (inner, columns), (rows, columns))
    left, right, sums = (
        _gather(block, warp, operand, kind, _fragment(operand, kind, shape), shape)
        for operand, kind, shape in zip((a, b, c), types[1:], shapes, strict=True)
    )
    place = _fragment(d, types[0], shapes[2])
    _scatter(block, warp, d, types[0], place, left @ right + sums)


RULES: dict[str, Callable[[Block, Warp, Instruction, list[int]], None]] = {
    "ldmatrix": _ldmatrix, "stmatrix": _stmatrix, "movmatrix": _movmatrix, "mma": _mma,
    "wmma": _wmma,
}  # fmt: skip
"""By opcode."""

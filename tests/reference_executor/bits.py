"""Logic, shifts, bit fields, permutations, comparison and selection of one lane."""

from __future__ import annotations

from collections.abc import Callable

from .formats import FORMATS, decode, flush, less
from .words import Lane, Words, integer, is_float, low


def _logic(words: Words) -> Lane:
    operations: dict[str, Lane] = {
        "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
        "not": lambda a: a ^ (1 << words.bits) - 1,
        "cnot": lambda a: int(low(a, words.bits) == 0),
    }  # fmt: skip
    return operations[words.opcode]


def _lop3(words: Words) -> Lane:
    def lane(a: int, b: int, c: int, table: int) -> int:
        result = 0
        for bit in range(32):
            index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1)
            result |= (table >> index & 1) << bit
        return result

    return lane


def _shift(words: Words) -> Lane:
    def lane(a: int, count: int) -> int:
        count = min(low(count, 32), words.bits)
        if words.opcode == "shl":
            return low(a, words.bits) << count
        return integer(a, words.type) >> count

    return lane


def _funnel(words: Words) -> Lane:
    def lane(a: int, b: int, c: int) -> int:
        n = c & 31 if words.has("wrap") else min(c, 32)
        if words.has("l"):
            return b << n | a >> 32 - n
        return b << 32 - n | a >> n

    return lane


def _bfe(words: Words) -> Lane:
    last = words.bits - 1

    def lane(a: int, b: int, c: int) -> int:
        start, length = b & 255, c & 255
        unsigned = words.type[0] == "u" or length == 0
        sign = 0 if unsigned else a >> min(start + length - 1, last) & 1
        result = 0
        for i in range(words.bits):
            bit = a >> start + i & 1 if i < length and start + i <= last else sign
            result |= bit << i
        return result

    return lane


def _bfi(words: Words) -> Lane:
    def lane(a: int, b: int, c: int, d: int) -> int:
        start, length = c & 255, d & 255
        for i in range(length):
            if start + i < words.bits:
                b = b & ~(1 << start + i) | (a >> i & 1) << start + i
        return b

    return lane


def _bfind(words: Words) -> Lane:
    last = words.bits - 1

    def lane(a: int) -> int:
        if words.type[0] == "s" and a >> last & 1:
            a = ~a
        for i in range(last, -1, -1):
            if a >> i & 1:
                return last - i if words.has("shiftamt") else i
        return 0xFFFFFFFF

    return lane


def _count(words: Words) -> Lane:
    if words.opcode == "popc":
        return lambda a: low(a, words.bits).bit_count()
    if words.opcode == "clz":
        return lambda a: words.bits - low(a, words.bits).bit_length()
    return lambda a: int(f"{low(a, words.bits):0{words.bits}b}"[::-1], 2)  # brev


_PERMUTATIONS: dict[str, tuple[tuple[int, ...], ...]] = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0,) * 4, (1,) * 4, (2,) * 4, (3,) * 4),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}
"""Byte chosen for each place of the result, lowest first, by the two low bits of the selector."""


def _prmt(words: Words) -> Lane:
    mode = words.one_of(*_PERMUTATIONS)

    def lane(a: int, b: int, c: int) -> int:
        pool, result = a | b << 32, 0
        for place in range(4):
            choice = c >> 4 * place & 15
            if mode:
                choice = _PERMUTATIONS[mode][c & 3][place]
            byte = pool >> 8 * (choice & 7) & 255
            if choice & 8:
                byte = 255 if byte >> 7 else 0
            result |= byte << 8 * place
        return result

    return lane


def _fns(words: Words) -> Lane:
    def lane(mask: int, base: int, offset: int) -> int:
        offset = integer(offset, "s32")
        if offset == 0:
            return base if mask >> base & 1 else 0xFFFFFFFF
        left, step = abs(offset) - 1, 1 if offset > 0 else -1
        while 0 <= base < 32:
            if mask >> base & 1:
                if left == 0:
                    return base
                left -= 1
            base += step
        return 0xFFFFFFFF

    return lane


def _szext(words: Words) -> Lane:
    def lane(a: int, b: int) -> int:
        if b >= 32 and words.has("clamp"):
            return a
        length = b & 31
        if length == 0:
            return 0
        return integer(a << 32 - length, words.type) >> 32 - length

    return lane


def _bmsk(words: Words) -> Lane:
    def lane(a: int, b: int) -> int:
        if words.has("clamp"):
            first, count = min(a, 32), min(b, 32)
        else:
            first, count = a & 31, b & 31
        return low(((1 << count) - 1) << first, 32)

    return lane


_ORDER: dict[str, Callable[[int], bool]] = {
    "eq": lambda o: o == 0, "ne": lambda o: o != 0, "lt": lambda o: o < 0, "le": lambda o: o <= 0,
    "gt": lambda o: o > 0, "ge": lambda o: o >= 0, "lo": lambda o: o < 0, "ls": lambda o: o <= 0,
    "hi": lambda o: o > 0, "hs": lambda o: o >= 0,
}  # fmt: skip
_COMPARISONS = (*_ORDER, "num", "nan", *(f"{n}u" for n in ("eq", "ne", "lt", "le", "gt", "ge")))


def _comparison(words: Words) -> Callable[[int, int], bool]:
    name = words.modifiers[0]
    if name not in _COMPARISONS:
        raise ValueError(f"{name} is no comparison")
    if not is_float(words.type):
        order = _ORDER[name]

        def whole(a: int, b: int) -> bool:
            x, y = integer(a, words.type), integer(b, words.type)
            return order((x > y) - (x < y))

        return whole
    form = FORMATS[words.type]

    def numbers(a: int, b: int) -> bool:
        if words.has("ftz"):
            a, b = flush(form, a), flush(form, b)
        x, y = decode(form, a), decode(form, b)
        unordered = "nan" in (x.kind, y.kind)
        if name in ("num", "nan"):
            return unordered == (name == "nan")
        if unordered:
            return name.endswith("u")
        return _ORDER[name[:2]](less(y, x) - less(x, y))

    return numbers


def _combined(words: Words, truth: bool, other: int | None) -> bool:
    if other is None:
        return truth
    operation = words.one_of("and", "or", "xor")
    if operation == "and":
        return truth and bool(other)
    return truth or bool(other) if operation == "or" else truth != bool(other)


def _setp(words: Words) -> Lane:
    if words.type.endswith("x2"):
        half = _comparison(words.scalar())

        def pair(a: int, b: int, c: int | None = None) -> tuple[int, int]:
            results = [half(low(a >> s, 16), low(b >> s, 16)) for s in (0, 16)]
            return int(_combined(words, results[0], c)), int(_combined(words, results[1], c))

        return pair
    compare = _comparison(words)

    def lane(a: int, b: int, c: int | None = None) -> tuple[int, int]:
        truth = compare(a, b)
        return int(_combined(words, truth, c)), int(_combined(words, not truth, c))

    return lane


def _set(words: Words) -> Lane:
    result, source = words.types[-2:]
    ones = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}
    if source.endswith("x2"):
        half = _comparison(words.scalar())
        truth_bits = ones.get(result.removesuffix("x2"), 0xFFFF)

        def pair(a: int, b: int, c: int | None = None) -> int:
            total = 0
            for s in (0, 16):
                if _combined(words, half(low(a >> s, 16), low(b >> s, 16)), c):
                    total |= truth_bits << s
            return total

        return pair
    compare, truth_value = _comparison(words), ones.get(result, -1)
    return lambda a, b, c=None: truth_value if _combined(words, compare(a, b), c) else 0


def _slct(words: Words) -> Lane:
    if words.type == "s32":
        return lambda a, b, c: a if integer(c, "s32") >= 0 else b
    form = FORMATS["f32"]

    def lane(a: int, b: int, c: int) -> int:
        number = decode(form, flush(form, c) if words.has("ftz") else c)
        return a if number.kind != "nan" and (number.zero or not number.negative) else b

    return lane


RULES: dict[str, Callable[[Words], Lane]] = {
    **dict.fromkeys(("and", "or", "xor", "not", "cnot"), _logic),
    **dict.fromkeys(("shl", "shr"), _shift), **dict.fromkeys(("popc", "clz", "brev"), _count),
    "lop3": _lop3, "shf": _funnel, "bfe": _bfe, "bfi": _bfi, "bfind": _bfind, "prmt": _prmt,
    "fns": _fns, "szext": _szext, "bmsk": _bmsk, "setp": _setp, "set": _set, "slct": _slct,
    "selp": lambda words: lambda a, b, c: a if c else b,
}  # fmt: skip
"""By opcode; each builds the rule of one instruction."""

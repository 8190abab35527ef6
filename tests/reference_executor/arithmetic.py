"""Integer and floating-point arithmetic of one lane, chapter 9.7.1 to 9.7.5 of the PTX ISA."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from .formats import (
    FORMATS,
    NAN,
    Format,
    Number,
    add,
    decode,
    divide,
    encode,
    flush,
    infinity,
    is_nan,
    less,
    multiply,
    negated,
    square_root,
    whole,
)  # fmt: skip
from .words import Lane, Words, by_halves, clamped, integer, is_float, low

_ONE = whole(1)


def _clamp_unit(form: Format, bits: int) -> int:
    """.sat: into [0, 1], NaN to +0."""
    number = decode(form, bits)
    if number.kind == "nan" or number.negative:
        return 0
    return encode(form, _ONE) if less(_ONE, number) else bits


def _not_negative(form: Format, bits: int) -> int:
    """.relu: negative results become +0, NaN becomes the canonical NaN."""
    number = decode(form, bits)
    return form.nan if number.kind == "nan" else 0 if number.negative else bits


def finish(words: Words, form: Format, bits: int) -> int:
    """Apply the modifiers that act on a rounded result."""
    if words.has("ftz"):
        bits = flush(form, bits)
    if words.has("sat"):
        bits = _clamp_unit(form, bits)
    if words.has("relu"):
        bits = _not_negative(form, bits)
    return bits


def floating(words: Words, exact: Callable[..., Number]) -> Lane:
    """Make a rule of an exact operation on numbers: flush, compute, round once, finish."""
    form, mode = words.form, words.rounding

    def lane(*values: int) -> int:
        if words.has("ftz"):
            values = tuple(flush(form, v) for v in values)
        result = exact(*(decode(form, v) for v in values))
        return finish(words, form, encode(form, result, mode))

    return lane


def _add(words: Words) -> Lane:
    if is_float(words.type):
        if words.opcode == "sub":
            return floating(words, lambda x, y: add(x, negated(y), words.rounding))
        return floating(words, lambda x, y: add(x, y, words.rounding))
    sign = -1 if words.opcode in ("sub", "subc") else 1
    carried = words.opcode in ("addc", "subc")

    def lane(a: int, b: int, carry: int = 0) -> object:
        x, y = low(a, words.bits), low(b, words.bits)
        total = x + sign * y + (sign * carry if carried else 0)
        if words.has("sat"):
            return clamped(integer(a, words.type) + sign * integer(b, words.type), words.type)
        if words.has("cc"):
            return total, int(not 0 <= total < 1 << words.bits)  # carry, or borrow
        return total

    return lane


def _mul(words: Words) -> Lane:
    if is_float(words.type):
        return floating(words, multiply)

    def lane(a: int, b: int) -> int:
        product = integer(a, words.type) * integer(b, words.type)
        return product >> words.bits if words.has("hi") else product

    return lane


def _mad(words: Words) -> Lane:
    if is_float(words.type):
        return floating(words, lambda x, y, z: add(multiply(x, y), z, words.rounding))
    product = _mul(words)
    bits, carried = words.bits, words.opcode == "madc"

    def lane(a: int, b: int, c: int, carry: int = 0) -> object:
        part = int(product(a, b))  # type: ignore[call-overload]
        if words.has("sat"):
            return clamped(part + integer(c, words.type), words.type)
        if words.has("wide"):
            return part + c
        total = low(part, bits) + low(c, bits) + (carry if carried else 0)
        return (total, total >> bits) if words.has("cc") else total

    return lane


def _product24(words: Words) -> Lane:
    def lane(a: int, b: int, c: int = 0) -> int:
        def narrow(v: int) -> int:
            v = low(v, 24)
            return v - (1 << 24) if words.type[0] == "s" and v >> 23 else v

        product = narrow(a) * narrow(b)
        part = product >> 16 if words.has("hi") else product
        if words.has("sat"):
            return clamped(part + integer(c, words.type), words.type)
        return part + c

    return lane


def _sad(words: Words) -> Lane:
    return lambda a, b, c: c + abs(integer(a, words.type) - integer(b, words.type))


def _divide(words: Words) -> Lane:
    if is_float(words.type):
        return floating(words, divide)

    def lane(a: int, b: int) -> int:
        x, y = integer(a, words.type), integer(b, words.type)
        if y == 0:  # "machine-specific": what ptxas makes of constants, all ones and the dividend
            return -1 if words.opcode == "div" else x
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return quotient if words.opcode == "div" else x - quotient * y

    return lane


def _sign(words: Words) -> Lane:
    if not is_float(words.type):
        if words.opcode == "neg":
            return lambda a: -integer(a, words.type)
        return lambda a: abs(integer(a, words.type))
    form, top = words.form, 1 << words.bits - 1

    def lane(a: int) -> int:
        if words.has("ftz"):
            a = flush(form, a)
        return a ^ top if words.opcode == "neg" else a & ~top

    return lane


def _copysign(words: Words) -> Lane:
    top = 1 << words.bits - 1
    return lambda a, b: (a & top) | (b & ~top)


def _extreme(words: Words) -> Lane:
    smaller = words.opcode == "min"
    if not is_float(words.type):

        def whole_numbers(a: int, b: int) -> int:
            x, y = integer(a, words.type), integer(b, words.type)
            result = min(x, y) if smaller else max(x, y)
            return max(result, 0) if words.has("relu") else result

        return whole_numbers
    form, top = words.form, 1 << words.bits - 1

    def lane(a: int, b: int) -> int:
        if words.has("ftz"):
            a, b = flush(form, a), flush(form, b)
        sign = (a ^ b) & top
        if words.has("abs"):  # .xorsign.abs
            a, b = a & ~top, b & ~top
        x, y = decode(form, a), decode(form, b)
        if "nan" in (x.kind, y.kind):
            if words.has("NaN") or x.kind == y.kind:
                return form.nan
            result = b if x.kind == "nan" else a
        elif x.zero and y.zero:  # +0 counts as larger than -0
            result = a | b if smaller else a & b
        else:
            result = a if less(x, y) == smaller else b
        if words.has("xorsign"):
            result = result & ~top | sign
        return finish(words, form, result)

    return lane


def _dot(words: Words) -> Lane:
    a_type, b_type = words.types[-2:]
    kinds = (a_type[0], b_type[0])

    def lane(a: int, b: int, c: int) -> int:
        total = c
        if words.opcode == "dp4a":
            pairs = [((8 * i, 8), (8 * i, 8)) for i in range(4)]
        else:
            half = 16 if words.has("hi") else 0
            pairs = [((16 * i, 16), (half + 8 * i, 8)) for i in range(2)]
        for (i, wide), (j, narrow) in pairs:
            x = integer(a >> i, f"{kinds[0]}{wide}")
            y = integer(b >> j, f"{kinds[1]}{narrow}")
            total += x * y
        return total

    return lane


def _from_double(value: float) -> Number:
    return decode(FORMATS["f64"], int.from_bytes(struct.pack("<d", value), "little"))


def _double(x: Number) -> float:
    value = math.inf if x.kind == "infinite" else math.ldexp(x.significand, x.exponent)
    return -value if x.negative else value


_TURNS_A_RADIAN = float.fromhex("0x1.45f306p-3")
"""1 / (2 pi) in single precision."""


def _sine(f: Callable[[float], float]) -> Callable[[float], float]:
    def of(v: float) -> float:
        """Make turns of radians, cut off to single precision, as the hardware does, and back."""
        if math.isinf(v):
            return math.nan
        significand, exponent = math.frexp(v * _TURNS_A_RADIAN)  # exact: 48 bits
        turns = math.ldexp(math.trunc(math.ldexp(significand, 24)), exponent - 24)
        return f(2 * math.pi * math.remainder(turns, 1.0))

    return of


def _exponential(v: float) -> float:
    return math.inf if v > 1023 else math.exp2(v)


def _logarithm(v: float) -> float:
    if v == 0:
        return -math.inf
    return math.nan if v < 0 else math.log2(v)


def _approximate(f: Callable[[float], float]) -> Callable[[Words], Lane]:
    """Make a rule of a function evaluated in double: compared within a stated distance."""

    def build(words: Words) -> Lane:
        def exact(x: Number) -> Number:
            return NAN if x.kind == "nan" else _from_double(f(_double(x)))

        return floating(words, exact)

    return build


def _root(words: Words) -> Lane:
    return floating(words, square_root)


def _reciprocal(words: Words) -> Lane:
    return floating(words, lambda x: divide(_ONE, x))


def _reciprocal_root(words: Words) -> Lane:
    return floating(
        words, lambda x: infinity(x.negative) if x.zero else divide(_ONE, square_root(x))
    )


def _testp(words: Words) -> Lane:
    form = words.form

    def lane(a: int) -> int:
        x = decode(form, a)
        subnormal = x.kind == "finite" and not x.zero and flush(form, a) != a
        return int({
            "finite": x.kind == "finite", "infinite": x.kind == "infinite",
            "number": x.kind != "nan", "notanumber": is_nan(form, a),
            "normal": x.kind == "finite" and not x.zero and not subnormal,
            "subnormal": subnormal,
        }[words.modifiers[0]])  # fmt: skip

    return lane


def _exponent(bits: int) -> int:
    """Return the exponent of a float's bits, far out for zeros, infinities and NaN."""
    value = struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]
    if value == 0:
        return -150
    return math.frexp(value)[1] - 1 if math.isfinite(value) else 200


def _odd_quotient(x: int, y: int) -> bool:
    a, b = _exponent(x), _exponent(y)
    return not (-101 <= a <= 127 and -125 <= b <= 124 and -124 <= a - b <= 126)


SLOW_PATHS: dict[str, Callable[..., bool]] = {
    "div": _odd_quotient,
    "sqrt": lambda x: bool(x >> 31 & 1) or not -101 <= _exponent(x) <= 127,
    "rcp": lambda x: not -126 <= _exponent(x) <= 125,
}
"""Operands for which ptxas calls a function, of .rn.f32, as measured on an H200."""

_VIDEO: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda x, y: x + y, "vsub": lambda x, y: x - y, "vmin": min, "vmax": max,
    "vabsdiff": lambda x, y: abs(x - y), "vavrg": lambda x, y: x + y + (x + y >= 0) >> 1,
}  # fmt: skip


def _video(words: Words) -> Lane:
    """SIMD video instructions: two or four parts, each on its own, or their sum added to c."""
    parts = int(words.opcode[-1])
    operation, width = _VIDEO[words.opcode[:-1]], 32 // parts
    d_type, a_type, b_type = (f"{t[0]}{width}" for t in words.types[:3])

    def lane(a: int, b: int, c: int) -> int:
        total = c if words.has("add") else 0
        for place in range(0, 32, width):
            value = operation(integer(a >> place, a_type), integer(b >> place, b_type))
            if words.has("sat"):
                value = clamped(value, d_type)
            total += integer(value, d_type) if words.has("add") else low(value, width) << place
        return total

    return lane


_RULES: dict[str, Callable[[Words], Lane]] = {
    **dict.fromkeys(("add", "sub", "addc", "subc"), _add),
    "mul": _mul, **dict.fromkeys(("mad", "madc", "fma"), _mad),
    **dict.fromkeys(("mul24", "mad24"), _product24), "sad": _sad,
    **dict.fromkeys(("div", "rem"), _divide), **dict.fromkeys(("neg", "abs"), _sign),
    "copysign": _copysign, **dict.fromkeys(("min", "max"), _extreme),
    **dict.fromkeys(("dp4a", "dp2a"), _dot), "testp": _testp,
    **{f"{name}{parts}": _video for name in _VIDEO for parts in (2, 4)},
    "sqrt": _root, "rcp": _reciprocal, "rsqrt": _reciprocal_root,
    "ex2": _approximate(_exponential), "lg2": _approximate(_logarithm),
    "sin": _approximate(_sine(math.sin)), "cos": _approximate(_sine(math.cos)),
    "tanh": _approximate(math.tanh),
}  # fmt: skip


def _halved(build: Callable[[Words], Lane]) -> Callable[[Words], Lane]:
    def rule(words: Words) -> Lane:
        return by_halves(build(words.scalar())) if words.type.endswith("x2") else build(words)

    return rule


RULES: dict[str, Callable[[Words], Lane]] = {name: _halved(f) for name, f in _RULES.items()}
"""By opcode; each builds the rule of one instruction."""

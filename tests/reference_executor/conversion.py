"""cvt: conversions of one lane between integers and floating-point formats."""

from __future__ import annotations

from .arithmetic import finish
from .formats import FORMATS, Number, decode, encode, flush, to_integral, whole
from .words import TYPE_BITS, Lane, Words, clamped, integer, is_float, limits, low


def _number(words: Words, source: str, bits: int) -> Number:
    bits = low(bits, TYPE_BITS[source])
    if source == "f32" and words.has("ftz"):
        bits = flush(FORMATS["f32"], bits)
    return decode(FORMATS[source], bits)


def _to_integer(words: Words, to: str, source: str) -> Lane:
    mode = words.one_of("rni", "rzi", "rmi", "rpi", default="rzi")

    def lane(a: int) -> int:
        number = _number(words, source, a)
        if number.kind == "nan":
            # "Zero if source is not .f64 and destination is not .s64, .u64; otherwise
            # 1 << (BitWidth(dst) - 1)".
            if source != "f64" and to not in ("s64", "u64"):
                return 0
            return limits(to)[0] if to[0] == "s" else 1 << TYPE_BITS[to] - 1
        if number.kind == "infinite":
            return limits(to)[0 if number.negative else 1]
        return clamped(to_integral(number, mode), to)

    return lane


def _to_float(words: Words, to: str, source: str, keep: str) -> Lane:
    """`keep` lists the modifiers that act on the result."""
    form, after = FORMATS[to], Words("cvt", tuple(w for w in words.modifiers if w in keep.split()))
    rounding = words.one_of("rni", "rzi", "rmi", "rpi")

    def lane(a: int) -> int:
        if not is_float(source):
            return finish(after, form, encode(form, whole(integer(a, source)), words.rounding))
        number = _number(words, source, a)
        if rounding and number.kind == "finite":
            value = to_integral(number, rounding)
            number = Number("finite", number.negative, abs(value))
        bits = encode(form, number, words.rounding)
        return finish(after, form, bits)

    return lane


def _cvt(words: Words) -> Lane:
    to, source = words.types[-2:]
    keep = "sat relu" + (" ftz" if to == "f32" else "")
    if to.endswith("x2"):
        half = _to_float(words, to.removesuffix("x2"), source, keep)
        return lambda a, b: int(half(a)) << 16 | int(half(b))  # type: ignore[call-overload]
    if is_float(to):
        return _to_float(words, to, source, keep)
    if is_float(source):
        return _to_integer(words, to, source)

    def lane(a: int) -> int:
        value = integer(a, source)
        return clamped(value, to) if words.has("sat") else integer(value, to)

    return lane


RULES = {"cvt": _cvt}
"""By opcode; each builds the rule of one instruction."""

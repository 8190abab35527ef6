"""Floating-point numbers as exact integers times powers of two, rounded once in any mode."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """An IEEE binary format: a sign, `exponent_bits`, and `fraction_bits` below the point."""

    exponent_bits: int
    fraction_bits: int
    padding: int = 0
    """Bits below the fraction that hold nothing (tf32 in its 32-bit container)."""

    @property
    def bits(self) -> int:
        """Width of the container."""
        return 1 + self.exponent_bits + self.fraction_bits + self.padding

    @property
    def bias(self) -> int:
        """What the stored exponent of 1.0 is."""
        return (1 << self.exponent_bits - 1) - 1

    @property
    def nan(self) -> int:
        """The canonical NaN of the PTX ISA: all ones for 16 and 32 bits, quiet for f64."""
        if self.bits == 64:
            return 0x7FF8 << 48
        return (1 << self.bits - 1) - 1


FORMATS: dict[str, Format] = {
    "f16": Format(5, 10), "bf16": Format(8, 7), "f32": Format(8, 23), "f64": Format(11, 52),
    "tf32": Format(8, 10, 13),
}  # fmt: skip


@dataclass(frozen=True)
class Number:
    """`kind` is finite, infinite or nan; a finite one is significand * 2**exponent."""

    kind: str
    negative: bool = False
    significand: int = 0
    exponent: int = 0

    @property
    def zero(self) -> bool:
        """Plus or minus zero."""
        return self.kind == "finite" and not self.significand

    @property
    def integer(self) -> int:
        """The signed significand."""
        return -self.significand if self.negative else self.significand


NAN = Number("nan")


def infinity(negative: bool) -> Number:
    """Return plus or minus infinity."""
    return Number("infinite", negative)


def whole(value: int) -> Number:
    """Return an integer as a number."""
    return Number("finite", value < 0, abs(value))


def decode(form: Format, bits: int) -> Number:
    """Return what a bit pattern stands for."""
    bits >>= form.padding
    fraction = bits & (1 << form.fraction_bits) - 1
    stored = bits >> form.fraction_bits & (1 << form.exponent_bits) - 1
    negative = bool(bits >> form.fraction_bits + form.exponent_bits & 1)
    if stored == (1 << form.exponent_bits) - 1:
        return NAN if fraction else infinity(negative)
    if stored:
        fraction |= 1 << form.fraction_bits
    return Number(
        "finite", negative, fraction, max(stored, 1) - form.bias - form.fraction_bits
    )


def _rounded_up(kept: int, lost: int, shift: int, negative: bool, mode: str) -> bool:
    """Decide whether the magnitude grows by one unit, `lost` being the `shift` bits cut off."""
    half = 1 << shift - 1
    if mode == "rn":
        return lost > half or (lost == half and kept & 1 == 1)
    if mode == "rna":
        return lost >= half
    return lost > 0 and mode == ("rm" if negative else "rp")


def encode(form: Format, number: Number, mode: str = "rn") -> int:
    """Return the bit pattern of a number rounded to the format: rn, rna, rz, rm or rp."""
    if number.kind == "nan":
        return form.nan
    top = (1 << form.exponent_bits) - 1
    sign = int(number.negative) << form.exponent_bits
    if number.kind == "infinite":
        return (sign | top) << form.fraction_bits + form.padding
    significand, exponent = number.significand, number.exponent
    # The exponent of the last place kept: that of the subnormals, or what leaves the full width.
    smallest = 1 - form.bias - form.fraction_bits
    place = max(significand.bit_length() + exponent - form.fraction_bits - 1, smallest)
    if place <= exponent:
        kept = significand << exponent - place
    else:
        shift = place - exponent
        kept, lost = significand >> shift, significand & (1 << shift) - 1
        kept += _rounded_up(kept, lost, shift, number.negative, mode)
    # A carry out of the fraction moves into the exponent by itself.
    hidden = 1 << form.fraction_bits
    magnitude = kept if kept < hidden else ((place - smallest) << form.fraction_bits) + kept
    if magnitude >= top << form.fraction_bits:
        outward = mode in ("rn", "rna") or mode == ("rm" if number.negative else "rp")
        magnitude = (top << form.fraction_bits) - (0 if outward else 1)
    return (sign << form.fraction_bits | magnitude) << form.padding


def is_nan(form: Format, bits: int) -> bool:
    """Whether a bit pattern is a NaN."""
    return decode(form, bits).kind == "nan"


def flush(form: Format, bits: int) -> int:
    """Return zero of the same sign for a subnormal, and anything else as it is."""
    exponent = bits >> form.fraction_bits + form.padding & (1 << form.exponent_bits) - 1
    return bits if exponent else bits & 1 << form.bits - 1


def negated(x: Number) -> Number:
    """Return -x."""
    return Number(x.kind, not x.negative, x.significand, x.exponent)


def add(x: Number, y: Number, mode: str) -> Number:
    """Return the exact sum; the rounding mode decides the sign of a zero that cancels out."""
    if x.kind == "nan" or y.kind == "nan":
        return NAN
    if x.kind == "infinite" or y.kind == "infinite":
        if x.kind == y.kind and x.negative != y.negative:
            return NAN
        return x if x.kind == "infinite" else y
    exponent = min(x.exponent, y.exponent)
    total = (x.integer << x.exponent - exponent) + (y.integer << y.exponent - exponent)
    if total == 0:
        negative = x.negative if x.negative == y.negative else mode == "rm"
        return Number("finite", negative)
    return Number("finite", total < 0, abs(total), exponent)


def multiply(x: Number, y: Number) -> Number:
    """Return the exact product."""
    negative = x.negative != y.negative
    if x.kind == "nan" or y.kind == "nan" or (x.kind == "infinite" and y.zero):
        return NAN
    if y.kind == "infinite" and x.zero:
        return NAN
    if "infinite" in (x.kind, y.kind):
        return infinity(negative)
    return Number("finite", negative, x.significand * y.significand, x.exponent + y.exponent)


def divide(x: Number, y: Number) -> Number:
    """Return the quotient to 130 bits at least, the last set where anything was left over."""
    negative = x.negative != y.negative
    if x.kind == "nan" or y.kind == "nan" or (x.zero and y.zero):
        return NAN
    if x.kind == "infinite":
        return NAN if y.kind == "infinite" else infinity(negative)
    if y.kind == "infinite" or x.zero:
        return Number("finite", negative)
    if y.zero:
        return infinity(negative)
    shift = 130 + y.significand.bit_length()
    quotient, left = divmod(x.significand << shift, y.significand)
    return Number(
        "finite", negative, quotient << 1 | bool(left), x.exponent - y.exponent - shift - 1
    )


def square_root(x: Number) -> Number:
    """Return the root to more bits than any format has, the last one sticky."""
    if x.kind == "nan" or x.zero:
        return x
    if x.negative:
        return NAN
    if x.kind == "infinite":
        return x
    significand, exponent = x.significand << 130, x.exponent - 130
    if exponent % 2:
        significand, exponent = significand << 1, exponent - 1
    root = math.isqrt(significand)
    return Number(
        "finite", False, root << 1 | (root * root != significand), exponent // 2 - 1
    )


def to_integral(x: Number, mode: str) -> int:
    """Return a finite number rounded to an integer: rni, rzi, rmi or rpi."""
    if x.exponent >= 0:
        return x.integer << x.exponent
    shift = -x.exponent
    kept, lost = x.significand >> shift, x.significand & (1 << shift) - 1
    kept += _rounded_up(kept, lost, shift, x.negative, mode[:2])
    return -kept if x.negative else kept


def less(x: Number, y: Number) -> bool:
    """Whether x < y; neither is a NaN."""

    def place(v: Number) -> tuple[int, int, int]:
        if v.kind == "infinite":
            return (-1 if v.negative else 1, 0, 0)
        return (0, v.integer, v.exponent)

    (a, m, e), (b, n, f) = place(x), place(y)
    if a or b:
        return a < b
    low = min(e, f)
    return m << e - low < n << f - low

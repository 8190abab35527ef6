"""Constants of PTX: numbers in all their forms, and expressions of them."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable

from .records import Immediate, PtxError

_ALL = (1 << 64) - 1

def _divide(left: int, right: int) -> int:
    return abs(left) // abs(right) * (-1 if (left < 0) != (right < 0) else 1)


def _shift(left: int, by: int) -> int:
    if not -_LARGEST_SHIFT <= by <= _LARGEST_SHIFT:
        raise PtxError(f"a shift by {abs(by)}")
    return left << by if by >= 0 else left >> -by


_BINARY: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (1, lambda left, right: int(bool(left or right))),
    "&&": (2, lambda left, right: int(bool(left and right))),
    "|": (3, operator.or_), "^": (4, operator.xor), "&": (5, operator.and_),
    "==": (6, operator.eq), "!=": (6, operator.ne),
    "<": (7, operator.lt), ">": (7, operator.gt), "<=": (7, operator.le), ">=": (7, operator.ge),
    "<<": (8, _shift), ">>": (8, lambda left, by: _shift(left, -by)),
    "+": (9, operator.add), "-": (9, operator.sub), "*": (10, operator.mul), "/": (10, _divide),
    "%": (10, lambda left, right: left - _divide(left, right) * right),
}  # fmt: skip
"""How tightly each operator binds, and what it does."""
_UNARY: dict[str, Callable[[int], int]] = {
    "-": operator.neg, "+": operator.pos, "~": operator.invert, "!": operator.not_,
}  # fmt: skip
_LARGEST_SHIFT = 63


def begins_constant(token: str) -> bool:
    """Say whether an operand that begins with a token is a constant."""
    return token[0].isdigit() or token in ("-", "+", "~", "(", "WARP_SZ") or _is_fraction(token)


def read_constant(peek: Callable[[], str], take: Callable[[], str]) -> Immediate:
    """Read a number, or an expression of whole numbers, from a cursor.

    Whole numbers have 64 bits and a sign, unless they do not fit: what ptxas computes without a
    sign, a quotient or an order of numbers above 2^63, is not told apart.

    Raises:
        PtxError: it is no expression that is known here.
    """
    condition = _binary(peek, take, 1)
    if peek() != "?":
        return condition
    take()
    chosen = read_constant(peek, take)
    if take() != ":":
        raise PtxError("an expression that is not known")
    other = read_constant(peek, take)
    return chosen if condition.bits else other


def _binary(peek: Callable[[], str], take: Callable[[], str], least: int) -> Immediate:
    left = _unary(peek, take)
    while (found := _BINARY.get(peek())) and found[0] >= least:
        take()
        right = _binary(peek, take, found[0] + 1)
        if "integer" != left.kind or right.kind != "integer":
            raise PtxError("an expression of numbers that are not whole")
        try:
            left = _whole(int(found[1](left.bits, right.bits)))
        except ZeroDivisionError:
            raise PtxError("a division by zero") from None
    return left


def _unary(peek: Callable[[], str], take: Callable[[], str]) -> Immediate:
    token = take()
    if token == "(" and peek() in (".s64", ".u64"):
        as_type = take()
        if take() != ")":
            raise PtxError("an expression that is not known")
        value = _unary(peek, take)
        return _whole(value.bits) if as_type == ".s64" else _whole(value.bits & _ALL)
    if token == "(":
        inner = read_constant(peek, take)
        if take() != ")":
            raise PtxError("an expression that is not known")
        return inner
    if token in _UNARY:
        value = _unary(peek, take)
        if value.kind == "integer":
            return _whole(int(_UNARY[token](value.bits)))
        if token == "-" and value.kind == "f64":
            return Immediate("f64", value.bits ^ 1 << 63)
        raise PtxError("a sign before a number that has none")
    return read_number(token)


def _whole(value: int) -> Immediate:
    """Return a whole number of 64 bits; with a sign where it was negative or does not fit."""
    if -(1 << 63) <= value <= _ALL:
        return Immediate("integer", value)
    return Immediate("integer", value & _ALL)


def read_number(token: str) -> Immediate:
    """Return what one token says. Raises PtxError where it is no number."""
    if token[:2] in ("0f", "0F"):
        return Immediate("f32", int(token[2:], 16))
    if token[:2] in ("0d", "0D"):
        return Immediate("f64", int(token[2:], 16))
    if token == "WARP_SZ":
        return Immediate("integer", 32)
    digits = token.rstrip("U")
    if digits[:2] in ("0x", "0X", "0b", "0B"):
        return Immediate("integer", int(digits, 0))
    if digits.isdigit():
        return Immediate("integer", int(digits, 8 if digits[0] == "0" else 10))
    if digits[0].isdigit() or _is_fraction(digits):
        return Immediate("f64", int.from_bytes(struct.pack("<d", float(digits)), "little"))
    raise PtxError(f"a constant that is not known: {token}")


def _is_fraction(token: str) -> bool:
    return token[0] == "." and token[1:2].isdigit()

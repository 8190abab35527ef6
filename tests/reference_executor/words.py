"""What the modifiers of one instruction say, in the form the rules of the reference ask for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

from kernelblaster.harness.simt.ptx.records import Instruction

from .formats import FORMATS, Format

TYPE_BITS: dict[str, int] = {
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)},
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "tf32": 32, "pred": 1, "b128": 128,
    "f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32,
}  # fmt: skip

Lane = Callable[..., object]
"""Takes the sources of one lane as bit patterns and returns its result, or a tuple of results."""


@dataclass(frozen=True)
class Words:
    """An opcode and its modifiers."""

    opcode: str
    modifiers: tuple[str, ...]

    @cached_property
    def _given(self) -> frozenset[str]:
        return frozenset(self.modifiers)

    def has(self, *words: str) -> bool:
        """Whether any of the words stands among the modifiers."""
        return not self._given.isdisjoint(words)

    def one_of(self, *words: str, default: str = "") -> str:
        """Return the first of the words that stands among the modifiers."""
        return next((word for word in words if word in self.modifiers), default)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The types named, in order."""
        return tuple(word for word in self.modifiers if word in TYPE_BITS)

    @cached_property
    def type(self) -> str:
        """The last type named: that of the sources."""
        return self.types[-1]

    @cached_property
    def bits(self) -> int:
        """Width of the type."""
        return TYPE_BITS[self.type]

    @cached_property
    def rounding(self) -> str:
        """The floating-point rounding mode, to nearest where none is named."""
        return self.one_of("rn", "rz", "rm", "rp", "rna", default="rn")

    @cached_property
    def form(self) -> Format:
        """The floating-point format of the type."""
        return FORMATS[self.type]

    def scalar(self) -> Words:
        """Return the same words about one half of a packed type."""
        return Words(self.opcode, tuple(word.removesuffix("x2") for word in self.modifiers))


@cache
def _words(opcode: str, modifiers: tuple[str, ...]) -> Words:
    return Words(opcode, modifiers)


def words_of(instruction: Instruction) -> Words:
    """Return the words of an instruction."""
    return _words(instruction.opcode, instruction.modifiers)


def is_float(type_name: str) -> bool:
    """Whether a scalar type is a floating-point one."""
    return type_name in FORMATS


def low(value: int, bits: int) -> int:
    """Return the low bits of an integer as an unsigned number."""
    return value & (1 << bits) - 1


def integer(value: int, type_name: str) -> int:
    """Return the number that the low bits of a pattern stand for as an integer type."""
    bits = TYPE_BITS[type_name]
    value = low(value, bits)
    return value - (1 << bits) if type_name[0] == "s" and value >> bits - 1 else value


def limits(type_name: str) -> tuple[int, int]:
    """Return the smallest and largest number of an integer type."""
    bits = TYPE_BITS[type_name]
    if type_name[0] == "s":
        return -(1 << bits - 1), (1 << bits - 1) - 1
    return 0, (1 << bits) - 1


def clamped(value: int, type_name: str) -> int:
    """Return the nearest number of an integer type."""
    smallest, largest = limits(type_name)
    return min(max(value, smallest), largest)


def by_halves(scalar: Lane) -> Lane:
    """Make a rule of 16 bits one of two halves of 32."""

    def packed(*values: int) -> int:
        parts = [scalar(*(low(v >> place, 16) for v in values)) for place in (0, 16)]
        first, second = (low(int(part), 16) for part in parts)  # type: ignore[call-overload]
        return first | second << 16

    return packed

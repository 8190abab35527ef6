"""What of a task may differ from case to case."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from .parts import Part
from .record import Record

Level = Literal["any", "positive", "scaled", "some", "below", "range", "order", "own"]
"""How far the values of a tensor may be changed, the freest first; see reference/drawing/."""


class Beyond(NamedTuple):
    """A stretch of numbers beyond the level of an input."""

    low: float
    high: float
    """The same where it is a single number."""
    part: Part
    """Of the input, where alone they may be."""


class Variation(Record):
    """What may differ from case to case, as far as forward() survives it at small dimensions.

    Found on the CPU, where an index out of range is an error and costs nothing, and the same on
    every device. A kernel may rely on shapes, dtypes and the constants, and on no other value.
    """

    levels: dict[str, Level] = Field(default_factory=dict)
    """By name, of each input and parameter, and of each buffer that is no constant."""
    fixed: tuple[str, ...] = ()
    """Inputs and parameters that are the same, in part or as a whole, under every seed."""
    constants: tuple[str, ...] = ()
    """Buffers that do not depend on the seed: constants of the task, never changed."""
    unsorted: tuple[str, ...] = ()
    """Inputs whose rows are in order by chance alone: under some seed they are not."""
    repeating: tuple[str, ...] = ()
    """Inputs whose integers all differ by chance alone: under some seed a row holds one twice."""
    unread: tuple[str, ...] = ()
    """Parameters and buffers on whose values no output depends: `launch` is not given them."""
    uniform_width: float = 1.0
    """How far from zero inputs of the distribution `uniform` lie: so little that what forward()
    adds to keep a root or a quotient finite shows, where it adds any."""
    multiplies: bool = False
    """Whether forward() multiplies so many numbers with each other that few but such near one make
    any: those of the distribution `uniform` are."""
    trained: dict[str, Level] = Field(default_factory=dict)
    """Floating parameters and buffers that forward() lets be of other size and sign, as they may be
    after training, in a case that it still tells right from wrong by: "positive" ones of size only.
    """
    alone: tuple[str, ...] = ()
    """Of these, what is a single number."""
    guarded: bool = False
    """Whether forward() answers to inputs that are all zero with numbers because it guards against
    them: one case is that."""
    undefined: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Of inputs, by name, what of "nan", "inf" and "-inf" a case holds: forward() asks for such and
    returns numbers."""
    least: bool = False
    """Whether the least integer of a type is common where integers are of all bits."""
    borders: tuple[tuple[float, int], ...] = ()
    """Magnitudes that forward() compares elements of its inputs with, 0 left out, and how many
    units in the last place from each it can tell: a case holds them and what lies so far beside."""
    named: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """Of inputs, by name, integers beyond their level that forward() compares elements with, or its
    losses pass over, and that make answers of their own: a case holds them."""
    parts: dict[str, dict[int, Part]] = Field(default_factory=dict)
    """Of these integers, by input, the part of it in which alone one is; of others it is all."""
    past: dict[str, tuple[tuple[int, int], ...]] = Field(default_factory=dict)
    """Of inputs, by name, the nearest and the furthest of integers past a border that forward()
    holds elements to: some of these are in place of a nearest one, which is in `named`."""
    ends: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Of floating inputs that stay within get_inputs()'s own range, the very ends of what forward()
    accepts: a case holds them. What lies next to one outside is refused, or answered without a
    number."""
    updated: tuple[str, ...] = ()
    """Buffers that forward() changes. A kernel does not: each call begins with the same ones."""

    def beyond(self, name: str) -> list[Beyond]:
        """Return stretches of numbers that an input may hold though its level has none of them."""
        parts = self.parts.get(name, {})
        past = [
            Beyond(min(span), max(span), parts.get(span[0], ())) for span in self.past.get(name, ())
        ]
        single = [
            Beyond(each, each, parts.get(int(each), ()))
            for each in (*self.named.get(name, ()), *self.ends.get(name, ()))
            if not any(low <= each <= high for low, high, _ in past)
        ]  # fmt: skip
        return [*single, *past]

    @property
    def not_varied(self) -> tuple[str, ...]:
        """Names of the tensors that a case could not vary: what a kernel makes of others is not
        known."""
        return tuple(name for name in self.fixed if self.levels.get(name) == "own")

"""Runs inside the reference child: sizes that nobody has seen, at which a task is still the task.

Sizes of one value change together, for that is mostly what they mean. What they may become is found
by trying: any number, else multiples of a power of two (heads, groups and vectors ask for that),
else they stay. Trials are counted, not timed: the same seed draws the same sizes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping

from ..loading.model import ReferenceFault
from .small_variant import KEPT, Cost
from .variant import Variant

UNITS = (1, 2, 4, 8, 16, 32, 64)
"""What the sizes of a group may have to be multiples of; the first that does is taken."""

MOST_TRIALS = 48

MOST_GROWTH = 1.5
"""Largest accepted factor of the elements, and of the work, over those at the base."""

_RANGES = ((0.5, 0.95), (1.03, 1.14), (0.6, 1.1))
"""Of the first, the second and each further shape, as factors of the base's sizes."""

_FAR_BELOW = (0.5, 0.72)
"""Instead of the first, where sizes are told apart: what is rounded to multiples (channels to
eights, the nearest or the next) is another at last, if it is two of them or more."""

_EVEN = 16
"""What the third shape's sizes are multiples of, and every third's after it: wide loads fit."""

Values = dict[str, int]
Names = tuple[str, ...]
Ranges = tuple[tuple[float, float], ...]


def other_sizes(
    full: Variant, source: str, base: Mapping[str, int], count: int, seed: str,
    beside: Mapping[str, int] | None = None,
) -> list[Variant]:  # fmt: skip
    """Return the task at drawn sizes: once below the base, once above, then around it.

    Args:
        full: the task as written.
        source: its text.
        base: all sizes by name, with the values to draw around.
        count: how many are wanted; there are fewer where the task allows no more.
        seed: what they are drawn from.
        beside: all sizes at which it is the task too: where two differ here, they do not go
            together.
    """
    try:
        at_base = _at(full, source, base)
    except ReferenceFault:
        return []
    attempt = _Trials(full, source, base, at_base.cost).attempt
    groups = _groups(base, beside or {})
    ranges = _RANGES if beside is None else (_FAR_BELOW, *_RANGES[1:])
    units = _units(groups, at_base, attempt, random.Random(seed), ranges)
    found: list[Variant] = []
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        values: Values = {}
        together = _drawn(groups, units, number, draw, {}, ranges)
        best = attempt(together) if together else None
        if together and best is None:
            # What cannot change with the rest stays.
            for names in units:
                one = values | _drawn(
                    groups, {names: units[names]}, number, draw, values, ranges
                )
                if (variant := attempt(one)) is not None:
                    values, best = one, variant
        if best is not None and all(best.dimensions != each.dimensions for each in found):
            found.append(best)
    return found


class _Trials:
    """Tries sizes beside the base's, at most MOST_TRIALS times."""

    def __init__(self, full: Variant, source: str, base: Mapping[str, int], cost: Cost) -> None:
        self._full, self._source, self._base, self._cost = full, source, base, cost
        self._left = MOST_TRIALS

    def attempt(self, values: Values) -> Variant | None:
        """Return the task at some sizes; None where it is not the task there, or too large."""
        if self._left <= 0:
            return None
        self._left -= 1
        try:
            variant = _at(self._full, self._source, {**self._base, **values})
        except ReferenceFault:
            return None
        most, cost = self._cost, variant.cost
        if cost.given + cost.kept > MOST_GROWTH * (most.given + most.kept):
            return None
        if cost.work > MOST_GROWTH * most.work or not variant.is_like(self._full, False):
            return None
        return variant


def _at(full: Variant, source: str, sizes: Mapping[str, int]) -> Variant:
    reference = full.reference
    return Variant(source, reference.path, sizes, reference.reading, full.faked)


def _groups(base: Mapping[str, int], beside: Mapping[str, int]) -> dict[Names, int]:
    """Return the names of each value that may change, with the value, the largest first."""
    movable = {name: value for name, value in base.items() if value > 2 and not KEPT.search(name)}
    together: dict[tuple[int, int], list[str]] = {}
    for name, value in movable.items():
        together.setdefault((value, beside.get(name, value)), []).append(name)
    return {tuple(together[key]): key[0] for key in sorted(together, reverse=True)}


def _units(
    groups: Mapping[Names, int],
    at_base: Variant,
    attempt: Callable[[Values], Variant | None],
    draw: random.Random,
    ranges: Ranges,
) -> dict[Names, int]:
    """Return what each group that can change alone must be a multiple of.

    A number that changes no tensor's shape is no size.
    """
    shapes = [each["shape"] for each in at_base.tensors]
    found: dict[Names, int] = {}
    for names, value in groups.items():
        for unit in UNITS:
            if value < 2 * unit:
                break
            variant = attempt(dict.fromkeys(names, _number(value, unit, 0, draw, (), ranges)))
            if variant is not None:
                if [each["shape"] for each in variant.tensors] != shapes:
                    found[names] = unit
                break
    return found


def _drawn(
    groups: Mapping[Names, int],
    units: Mapping[Names, int],
    number: int,
    draw: random.Random,
    beside: Values,
    ranges: Ranges,
) -> Values:
    """Return new sizes for some groups, none that another has."""
    values: Values = {}
    for names, unit in units.items():
        taken = {*values.values(), *beside.values()}
        values |= dict.fromkeys(names, _number(groups[names], unit, number, draw, taken, ranges))
    return values


def _number(
    value: int, unit: int, number: int, draw: random.Random, taken: Collection[int],
    ranges: Ranges,
) -> int:  # fmt: skip
    """Return another size of so many units: a prime number of them, later any but powers of two.

    The first is below the value and the second above it.
    """
    if number % 3 == 2 and value >= 4 * _EVEN:
        unit = max(unit, _EVEN)
    count = max(2, value // unit)
    start = max(2, round(count * draw.uniform(*ranges[min(number, 2)])))
    far = number == 0 and ranges[0] == _FAR_BELOW
    # Among few units there may be none so far below.
    for limit in (_FAR_BELOW[1] * value, math.inf) if far else (math.inf,):
        for step in range(4 * count + 64):
            tried = start + (step + 1) // 2 * (1 if step % 2 else -1)
            if tried < 2 or tried * unit in (value, *taken) or (number == 1 and tried < count):
                continue
            # Among few units there may be nothing but powers of two.
            if tried * unit <= limit and (
                count < 8 or (_is_prime(tried) if number < 2 else tried & (tried - 1))
            ):
                return tried * unit
    return (count + 1) * unit


def _is_prime(number: int) -> bool:
    return all(number % each for each in range(2, int(number**0.5) + 1))

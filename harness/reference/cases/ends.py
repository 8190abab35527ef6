"""Finds the very numbers at which ends what forward() accepts, by trying small dimensions.

An input that stays within get_inputs()'s own range does so because forward() refuses, or answers
without a number, what lies outside of another one: probabilities from 0 to 1, a cosine from -1 to
1. At these ends it often does something of its own (a logarithm that is held above -100), and
random numbers are never there. An end is a round number that forward() answers with numbers, while
it does not answer the next one of the type with any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import torch

from ...records.variations import Variation
from ..drawing.draws import Draw, Survives, draw
from ..drawing.structure import ends_of, has_structure
from ..loading.model import Reference, ReferenceFault
from .case import Case

MOST_INPUTS = 8
"""Inputs of which ends are looked for."""
STEPS = 10
"""Times that the stretch is halved in which an end lies: no whole number was one."""
DRAWS = (Draw(5, "zeros"), Draw(5, "zeros", tame=True), Draw(11, "full"))
"""Where ends are drawn."""


def with_ends(reference: Reference, variation: Variation, survives: Survives) -> Variation:
    """Return what may vary, with the ends of what forward() accepts of each floating input."""
    inputs = reference.instance(0).inputs
    levels = variation.levels
    tried = [
        name for name, own in inputs.items()
        if own.is_floating_point() and own.dtype.itemsize > 1 and own.numel()
        and levels.get(name) in ("range", "positive") and not has_structure(own, name, variation)
    ]  # fmt: skip
    draws = [how for how in DRAWS if survives(variation, [how])] if tried else []
    if DRAWS[0] in draws:  # What may be zero is in that case.
        tried = [name for name in tried if levels[name] == "range"]
    for name in tried[:MOST_INPUTS] if draws else ():
        for way in (-1, 1) if levels[name] == "range" else (-1,):
            accepts = partial(_survives_with, survives, draws[:1], variation, name)
            end = end_of(inputs[name], way, accepts)
            if end is None:
                continue
            found = _with(variation, name, end)
            if survives(found, draws[1:]) and _is_finite(reference, found, draws[0]):
                variation = found
    return variation


def _is_finite(reference: Reference, variation: Variation, how: Draw) -> bool:
    """Say whether answers are numbers in double precision too, where an end may be past it."""
    try:
        return Case(reference, draw(reference, how, variation)).finite
    except (ReferenceFault, RuntimeError):
        return False


def _survives_with(
    survives: Survives, draws: Sequence[Draw], variation: Variation, name: str, number: float
) -> bool:
    return survives(_with(variation, name, number), draws)


def _with(variation: Variation, name: str, number: float) -> Variation:
    ends = (*variation.ends.get(name, ()), number)
    return variation.model_copy(update={"ends": variation.ends | {name: ends}})


def end_of(
    own: torch.Tensor, way: int, accepts: Callable[[float], bool]
) -> float | None:
    """Return where what is accepted ends, below all numbers of a tensor (`way` -1) or above (1).

    None where no round number is an end, or nothing is refused as far away as the range is wide.
    """
    low, high = ends_of(own)
    inside = high if way > 0 else low
    outside = inside + way * ((high - low) or 1.0)
    whole = float(math.ceil(inside) if way > 0 else math.floor(inside))
    if _is_end(whole, way, own.dtype, accepts):
        return whole
    if accepts(outside):
        return None
    for _ in range(STEPS):
        middle = (inside + outside) / 2
        if accepts(middle):
            inside = middle
        else:
            outside = middle
    end = float(roundest(Fraction(min(inside, outside)), Fraction(max(inside, outside))))
    return end if _is_end(end, way, own.dtype, accepts) else None


def _is_end(
    number: float, way: int, dtype: torch.dtype, accepts: Callable[[float], bool]
) -> bool:
    near = torch.tensor(number, dtype=dtype)
    if float(near) != number:  # On which side of it the nearest one lies is rounding.
        return False
    next_one = float(torch.nextafter(near, torch.tensor(way * math.inf, dtype=dtype)))
    return accepts(number) and not accepts(next_one)


def roundest(low: Fraction, high: Fraction) -> Fraction:
    """Return the number of the least denominator between two, both included."""
    whole = math.ceil(low)
    if whole <= high:
        return Fraction(min(range(whole, math.floor(high) + 1), key=abs))
    below = math.floor(low)
    return below + 1 / roundest(1 / (high - below), 1 / (low - below))

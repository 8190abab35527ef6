"""Finds integers that forward() itself names and get_inputs() does not draw, by trying them.

The class that a loss passes over (-100 if nothing else is said), a label that is masked, what lies
on the other side of a comparison: such a number belongs to the task where forward() survives it and
makes something of it that it makes of no number within its range, or says itself what becomes of it
(`clamp`). An index that counts from the end is survived too, but nothing names it: kernels may rely
on what is told of the range. Where it is the first on a side of a border, others past it belong to
the task too: as far as the range is wide, or as is survived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ...records.parts import Part
from ...records.variations import Level, Variation
from ..drawing.draws import Draw, Survives, draw
from ..drawing.structure import structure_of, whole_ends
from ..loading.model import Reference, ReferenceFault
from ..precision.tolerances import same
from .comparisons import Named

MOST_TRIES = 16
"""Numbers that are tried, of all inputs."""
DRAWS = (Draw(5, "zeros"), Draw(11, "full"))
"""Where such numbers are drawn."""
_LEVELS = ("any", "below", "range")


def with_named(
    reference: Reference,
    variation: Variation,
    named: Mapping[str, Sequence[Named]],
    survives: Survives,
) -> Variation:
    """Return what may vary, with the integers beyond it that forward() names and survives.

    Args:
        reference: whose inputs they are.
        variation: how far these vary.
        named: integers that forward() names, by input (`comparisons_of`).
        survives: says whether forward() survives draws.
    """
    inputs = reference.instance(0).inputs
    tries = [
        (name, each) for name, numbers in named.items()
        for each in _beyond(inputs[name], name, variation, numbers)
    ]  # fmt: skip
    draws = [how for how in DRAWS if survives(variation, [how])] if tries else []
    if not draws:
        return variation
    for name, each in tries[:MOST_TRIES]:
        tried = _with(variation, name, each.number, each.part)
        if survives(tried, draws) and (each.held or any(
            _tells(reference, tried, name, each.number, how) for how in draws
        )):
            variation = _with_past(inputs[name], tried, name, each, survives, draws)
    return variation


def _beyond(
    own: torch.Tensor, name: str, variation: Variation, numbers: Sequence[Named]
) -> list[Named]:
    """Return the numbers that no case holds, or hardly one, and that the type has."""
    level = variation.levels.get(name, "own")
    if level not in _LEVELS or not own.numel() or structure_of(own, name, variation).rises:
        return []
    low, high = _usual_ends(own, level)
    held = torch.iinfo(own.dtype)
    return [
        each for each in numbers
        if not low <= each.number <= high and held.min <= each.number <= held.max
    ]  # fmt: skip


def _usual_ends(own: torch.Tensor, level: Level) -> tuple[int, int]:
    """Return the least and the largest integer of the cases that are not of all bits."""
    return whole_ends(own, "below" if level == "any" else level)


def _with_past(
    own: torch.Tensor, variation: Variation, name: str, nearest: Named, survives: Survives,
    draws: Sequence[Draw],
) -> Variation:  # fmt: skip
    """Return what may vary, with what lies past a number, as far as forward() survives it."""
    low, high = _usual_ends(own, variation.levels[name])
    number, side = nearest.number, nearest.side
    if side != (1 if number > high else -1):
        return variation
    held, reach = torch.iinfo(own.dtype), high - low + 1
    while reach:
        furthest = min(max(number + side * reach, held.min), held.max)
        past = (*variation.past.get(name, ()), (number, furthest))
        found = variation.model_copy(update={"past": variation.past | {name: past}})
        if furthest != number and survives(_with(found, name, furthest, nearest.part), draws):
            return found
        reach //= 2
    return variation


def _with(variation: Variation, name: str, number: int, part: Part) -> Variation:
    numbers, parts = (*variation.named.get(name, ()), number), variation.parts
    if part:
        parts = parts | {name: parts.get(name, {}) | {number: part}}
    return variation.model_copy(
        update={"named": variation.named | {name: numbers}, "parts": parts}
    )


def _tells(
    reference: Reference, variation: Variation, name: str, number: int, how: Draw
) -> bool:
    """Say whether answers to a number are others than those to either end of the range there."""
    low, high = _usual_ends(reference.instance(0).inputs[name], variation.levels[name])
    found: list[list[torch.Tensor]] = []
    try:
        for each in (number, low, high):
            instance = draw(reference, how, variation)
            own = instance.inputs[name]
            own.masked_fill_(own == number, each)
            found.append(reference.outputs(instance.model, instance.arguments))
    except (ReferenceFault, RuntimeError):
        return False
    return not any(all(map(same, found[0], usual)) for usual in found[1:])

"""Cases in which one constant of the task is another: they tell who reads it from who relies on it.

A kernel may rely on the values of buffers that do not depend on the seed. Which it relies on shows
when they are changed: PyTorch follows them, and the kernel does not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch

from ...records.variations import Level, Variation
from ..drawing.draws import Draw, disturb, draw, kind_of
from ..loading.model import Instance, Reference, ReferenceFault, clone_arguments, lacks_memory
from .case import Case, fresh

MOST_CONSTANTS = 8
"""Constants that are changed in turn: the largest ones."""

CHANGED = Draw(1, "gaussian")
"""How the rest of such a case is drawn: as one of the ordinary cases."""

_LEVELS: dict[str, tuple[Level, ...]] = {
    "float": ("any", "scaled", "order"), "integer": ("range", "order"), "boolean": ("some", "order")
}  # fmt: skip
"""Tried in this order; integers stay in their range, for they may be indices."""


def changed_constants(
    reference: Reference, variation: Variation, is_usual: Callable[[Case], bool]
) -> Iterator[tuple[str, Level, Case]]:
    """Yield each constant whose change PyTorch survives and answers otherwise, how it was changed,
    and the case."""
    plain = draw(reference, CHANGED, variation)
    answers = reference.outputs(
        copy.deepcopy(plain.model), clone_arguments(plain.arguments, fresh)
    )
    sizes = {name: plain.buffers[name].numel() for name in variation.constants}
    for name in sorted(sizes, key=lambda each: -sizes[each])[:MOST_CONSTANTS]:
        for level in _LEVELS[kind_of(plain.buffers[name])]:
            try:
                case = Case(reference, with_another(reference, variation, name, level))
            except ReferenceFault as fault:
                if lacks_memory(fault):
                    raise
                continue
            if is_usual(case) and not _same(case.outputs, answers):
                yield name, level, case
                break


def with_another(
    reference: Reference, variation: Variation, name: str, level: Level
) -> Instance:
    """Draw an instance in which a constant has other values, the same each time."""
    instance = draw(reference, CHANGED, variation)
    generator = torch.Generator(reference.device).manual_seed(CHANGED.seed)
    with torch.no_grad():
        disturb(instance.buffers[name], level, generator)
    return instance


def _same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(
        torch.equal(a.nan_to_num(nan=0.5), b.nan_to_num(nan=0.5))
        for a, b in zip(one, other, strict=True)
    )

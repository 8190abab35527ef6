"""Finds inputs whose integers are in order, or all different, by chance: drawn again, they are not.

A few labels rise as they are drawn, and sixteen rows of thousands hardly ever repeat. Cases keep
what of an input's structure the task may be about, and this is not: a kernel that adds to one row
twice must do so rightly, though no row is there twice in most draws. But where forward() stores by
indices, and does not add, PyTorch does not say what stays of two that are equal: no draw is freer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...records.variations import Variation
from ..drawing.structure import is_distinct, is_sorted
from ..loading.model import Reference

CHANCE = 1e-3
"""That a structure comes about by chance, or stays through all draws: where it is less, it belongs
to the task."""
MOST_DRAWS = 64
"""Of the inputs under other seeds."""
STORING = {
    "index_copy": 3, "scatter": 3, "put": 2, "index_put": 2, "_unsafe_index_put": 2,
    "_index_put_impl": 2,
}  # fmt: skip
"""Operations that store by indices, unless they are told to accumulate or to reduce, and at which
place what they store is given."""


def with_chance(reference: Reference, variation: Variation) -> Variation:
    """Return what may vary, with the inputs that have no order, or repeat, under some seed.

    Raises ReferenceFault.
    """
    inputs = {
        name: own for name, own in reference.instance(0).inputs.items()
        if own.dtype is not torch.bool and own.numel() and own.dim() and own.shape[-1] > 1
    }  # fmt: skip
    # Rows are longer at full dimensions: what is in order by chance there may be so here.
    short = {
        name: own for name, own in inputs.items()
        if own.shape[-1] > 2 and _rises(own) >= CHANCE
    }  # fmt: skip
    whole = {name: own for name, own in inputs.items() if not own.is_floating_point()}
    if whole and _stores(reference):
        whole = {}
    return variation.model_copy(update={
        "unsorted": _without(reference, short, is_sorted, _rises),
        "repeating": _without(reference, whole, is_distinct, _differs),
    })  # fmt: skip


def _stores(reference: Reference) -> bool:
    """Say whether forward() stores by indices. Raises ReferenceFault."""
    instance = reference.instance(0)
    with _Stores() as seen:
        reference.outputs(instance.model, instance.arguments)
    return bool(seen.any)


class _Stores(TorchDispatchMode):  # type: ignore[misc]
    """Notes whether anything is stored by indices."""

    def __init__(self) -> None:
        super().__init__()
        self.any: bool = False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        place = STORING.get(str(function.overloadpacket.__name__).removesuffix("_"))
        adds = named.get("accumulate", args[3] if place == 2 and len(args) > 3 else False)
        if place and place < len(args) and not adds and "reduce" not in named:
            stored = args[place]  # A single number is the same from all.
            self.any |= isinstance(stored, torch.Tensor) and stored.numel() > 1
        return function(*args, **named)


def _without(
    reference: Reference,
    inputs: Mapping[str, torch.Tensor],
    has: Callable[[torch.Tensor], bool],
    chance: Callable[[torch.Tensor], float],
) -> tuple[str, ...]:
    """Return the inputs that have no such structure under one seed of so many as tell chance."""
    found = {name for name, own in inputs.items() if not has(own)}
    draws = {name: _draws(chance(own)) for name, own in inputs.items()}
    for seed in range(1, max(draws.values(), default=0) + 1):
        left = [name for name, most in draws.items() if seed <= most and name not in found]
        if not left:
            break
        drawn = reference.instance(seed).inputs
        found.update(name for name in left if not has(drawn[name]))
    return tuple(name for name in inputs if name in found)


def _draws(chance: float) -> int:
    """Return how many more draws tell a structure that has such a chance from an intended one."""
    if chance < CHANCE:
        return 0
    return MOST_DRAWS if chance >= 1 else min(MOST_DRAWS, math.ceil(math.log(CHANCE, chance)))


def _rises(own: torch.Tensor) -> float:
    """Return the chance that numbers drawn one by one rise, or stay, along all rows."""
    rows, terms, numbers = _sizes(own)
    each = math.lgamma(terms + numbers) - math.lgamma(terms + 1) - math.lgamma(numbers)
    return math.exp(min(0.0, rows * (each - terms * math.log(numbers))))


def _differs(own: torch.Tensor) -> float:
    """Return the chance that numbers drawn one by one differ along all rows."""
    rows, terms, numbers = _sizes(own)
    if terms > numbers:
        return 0.0
    each = math.lgamma(numbers + 1) - math.lgamma(numbers - terms + 1)
    return math.exp(min(0.0, rows * (each - terms * math.log(numbers))))


def _sizes(own: torch.Tensor) -> tuple[int, int, float]:
    """Return how many rows there are, of how many terms, and of how many numbers each may be one.
    """
    rows, terms = own.numel() // own.shape[-1], own.shape[-1]
    if own.is_floating_point():
        return rows, terms, 2.0**24
    return rows, terms, float(int(own.max()) - int(own.min()) + 1)

"""How small must inputs be for an epsilon to show? A norm of ordinary numbers hides any epsilon.

What forward() adds to a variance, or holds a divisor above, is far below a tolerance where that is
about 1: a kernel with ten times as much would pass. It shows where what it is added to is as small.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from ...judge.tensor_comparison import all_agree
from ...records.variations import Variation
from ..drawing.draws import Draw, draw
from ..loading.model import Reference, ReferenceFault, clone_arguments
from ..precision.rounding import OtherSums
from ..precision.tolerances import all_finite, tolerance_of
from .case import fresh, is_cast

WIDTHS = tuple(2.0**-power for power in (0, 4, 8, 12, 18, 24, 42))
"""Tried in this order: an epsilon is between 1e-3 and 1e-12, under a root or not."""

LARGEST = 1e-2
"""Greater numbers are what a task computes with."""

MORE = 1.25
"""Times the epsilon that has to show."""

_aten = torch.ops.aten
_KEEP = frozenset((
    _aten.add, _aten.add_, _aten.clamp, _aten.clamp_, _aten.clamp_min, _aten.clamp_min_,
    _aten.maximum,
))  # fmt: skip
"""Operations that keep a root or a quotient finite."""


class OtherEpsilon(OtherSums):
    """Answers with larger epsilons; `any` says whether there are some."""

    def __init__(self, factor: float = MORE) -> None:
        super().__init__()
        self.any = False
        self._factor = factor

    def answer(self, function: Any, args: Any, named: dict[str, Any]) -> Any:
        """Return the answer with every small number that is added, or held to, larger."""
        if function.overloadpacket in _KEEP:
            args = tuple(map(self._larger, args))
            named = {name: self._larger(value) for name, value in named.items()}
        return function(*args, **named)

    def _larger(self, value: Any) -> Any:
        number = value
        if isinstance(value, torch.Tensor):
            if value.dim() or not value.is_floating_point():
                return value
            number = float(value)
        if isinstance(number, float) and 0.0 < number < LARGEST:
            self.any = True
            return value * self._factor
        return value


def telling_width(reference: Reference, variation: Variation) -> float:
    """Return how far from zero inputs may lie for each epsilon of forward() to show, 1 at most.

    1 too where forward() has none, and where it shows at no width.
    """
    for width in WIDTHS:
        tried = variation.model_copy(update={"uniform_width": width})
        try:
            found = _shows(reference, tried)
        except (ReferenceFault, RuntimeError, ValueError, TypeError):
            continue
        if found is None:
            return 1.0
        if found:
            return width
    return 1.0


def _shows(reference: Reference, variation: Variation) -> bool | None:
    """Say whether larger epsilons are wrong for inputs of a width; None where there are none."""
    instance = draw(reference, Draw(2, "uniform", lines="drawn"), variation)
    arguments = clone_arguments(instance.arguments, fresh)
    other = OtherEpsilon()
    with other:
        changed = reference.outputs(copy.deepcopy(instance.model), arguments)
    if not other.any:
        return None
    answers = reference.outputs(instance.model, instance.arguments)
    tolerances = [
        tolerance_of(each, None, scale="both", cast=is_cast(instance, each)) for each in answers
    ]
    return all_finite(answers) and not all_agree(changed, answers, tolerances)

"""How small must inputs be for an epsilon to show? A norm of ordinary numbers hides any epsilon.

What forward() adds to a variance, or holds a divisor above, is far below a tolerance where that is
about 1: a kernel with ten times as much would pass. It shows where what it is added to is as small.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...judge.tensor_comparison import all_agree
from ...records.variations import Variation
from ..drawing.draws import Draw, draw
from ..loading.model import Reference, ReferenceFault, clone_arguments
from ..precision.rounding import OtherSums
from ..precision.tolerances import all_finite, root_mean_square, tolerance_of
from .case import Case, fresh, is_cast

WIDTHS = tuple(2.0**-power for power in (0, 4, 8, 12, 18, 24, 42))
"""Tried in this order: an epsilon is between 1e-3 and 1e-12, under a root or not."""

FAINT = 2.0**-28
"""Of inputs where there is no epsilon, and none may be added: their fourth powers are numbers in
single precision."""
FAINT_HALF = 2.0**-10
"""The same for float16."""
FAINT_ANSWERS = 1e-3
"""Of what answers are to ordinary inputs: those to faint ones are no smaller, or inputs stay."""
TELLING = 1e-3
"""Of the root mean square of answers: what other inputs make of them."""

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
_NEAR_ZERO = frozenset((
    _aten.expm1, _aten.expm1_, _aten.log1p, _aten.log1p_, _aten.elu, _aten.elu_, _aten.celu,
    _aten.selu, _aten.tanh, _aten.tanh_, _aten.sinh, _aten.sinh_, _aten.asinh, _aten.atanh,
))  # fmt: skip
"""Operations of which a plain kernel returns zero for what is next to it."""


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
            return _faint_width(reference, variation)
        if found:
            return width
    return 1.0


def _faint_width(reference: Reference, variation: Variation) -> float:
    """Return how far from zero inputs may lie for answers to be no smaller than ordinary ones, and
    to say as much: quotients, counts, places; 1 where other answers are."""
    types = {each.dtype for each in reference.instance(0).inputs.values()}
    if not any(each.is_floating_point for each in types):
        return 1.0
    width = FAINT_HALF if torch.float16 in types else FAINT
    tried = variation.model_copy(update={"uniform_width": width})
    try:
        with _Near() as near:
            usual = _answers(reference, variation, 2)
        if near.any:
            return 1.0
        case = Case(reference, draw(reference, Draw(2, "uniform", lines="unlike"), tried))
        other = _answers(reference, tried, 3)
    except (ReferenceFault, RuntimeError, ValueError, TypeError):
        return 1.0
    told = False
    for answer, before, another in zip(case.outputs, usual, other, strict=True):
        if answer.is_floating_point():
            size = root_mean_square(answer)
            if not size or size < FAINT_ANSWERS * root_mean_square(before):
                return 1.0
            told |= bool(((answer - another).abs() > TELLING * size).any())
        else:
            # What ordinary inputs make, and others do not, is what zeros would change.
            told |= torch.equal(answer, before) or not torch.equal(answer, another)
    return width if told and case.finite and case.is_precise else 1.0


def _answers(reference: Reference, variation: Variation, seed: int) -> list[torch.Tensor]:
    """Return what forward() makes of uniform inputs, its parameters those of one seed."""
    model = draw(reference, Draw(2, "uniform", lines="unlike"), variation).model
    given = draw(reference, Draw(seed, "uniform", lines="unlike"), variation)
    return reference.outputs(model, given.arguments)


class _Near(TorchDispatchMode):  # type: ignore[misc]
    """Notes operations that kernels compute as a difference from what they make of zero."""

    def __init__(self) -> None:
        super().__init__()
        self.any = False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.any |= function.overloadpacket in _NEAR_ZERO
        return function(*args, **(kwargs or {}))


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

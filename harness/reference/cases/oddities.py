"""Which inputs does forward() itself expect that are hardly ever drawn? Seen on calls of it.

No numbers where it asks for them, nothing but zeros where it guards against them, and the least
integer of a type where nothing is divided: that by -1 ends a process.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ...records.variations import Variation
from ..drawing.draws import Draw, Survives, draw
from ..loading.model import Instance, Reference, ReferenceFault, clone_arguments
from ..precision.tolerances import all_finite
from .case import fresh

ASKING = frozenset(
    ("isnan", "isinf", "isposinf", "isneginf", "isfinite", "nan_to_num", "nan_to_num_", "nansum",
     "nanmean", "nanmedian", "nanquantile", "fmax", "fmin")
)  # fmt: skip
"""Functions that ask whether something is a number, or pass over what is none."""

ASKING_BY_COMPARING = frozenset(("eq", "ne", "gt", "ge", "lt", "le"))
"""Functions that ask whether something is a number where they compare it with itself, and whether
it is finite where they compare it with what is not."""

UNDEFINED = (("nan", "inf", "-inf"), ("nan",), ("inf", "-inf"), ("-inf",), ("inf",))
"""Tried in this order."""
INFINITE = ("inf", "-inf")
MOST_INPUTS = 8
"""Floating inputs for which that is tried."""
LARGEST = 1e30
"""Answers that are larger have a tolerance as large: they prove nothing."""

_aten = torch.ops.aten
_DIVIDING = frozenset((
    _aten.div, _aten.floor_divide, _aten.remainder, _aten.fmod, _aten.__rshift__, _aten.gcd,
    _aten.lcm, _aten.pow,
))  # fmt: skip
_GUARDS = frozenset((
    _aten.clamp, _aten.clamp_min, _aten.clamp_max, _aten.maximum, _aten.masked_fill,
    _aten.nan_to_num, _aten.fmax,
))  # fmt: skip
"""Operations that may keep what they are given first from being zero, or no number."""


def with_oddities(reference: Reference, variation: Variation, survives: Survives) -> Variation:
    """Return what may vary, with what of this a case is to hold."""
    seen = _seen(reference, variation)
    update: dict[str, Any] = {"least": not seen.divides}
    if seen.asks:
        update["undefined"] = _undefined(reference, variation, seen.asks)
    if seen.guards and _is_guarded(reference, variation, survives):
        update["guarded"] = True
    return variation.model_copy(update=update)


class _Seen(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.divides = self.guards = False
        self.asks: tuple[str, ...] = ()
        """What is no number that it asks for."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        packet = function.overloadpacket
        self.guards |= packet in _GUARDS or packet is _aten.where
        tensors = [each for each in tree_leaves(args) if isinstance(each, torch.Tensor)]
        whole = packet is not _aten.div or "rounding_mode" in (kwargs or {})
        if packet in _DIVIDING and whole and not any(map(torch.is_floating_point, tensors)):
            self.divides = True
        return function(*args, **(kwargs or {}))


class _Asked(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.asks = self.asks_for_infinity = False

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        compares = name.strip("_") in ASKING_BY_COMPARING and len(args) > 1
        self.asks |= name in ASKING or (compares and args[0] is args[1])
        self.asks_for_infinity |= compares and any(map(_is_infinite, args))
        return function(*args, **(kwargs or {}))


def _is_infinite(value: Any) -> bool:
    """Say whether a number is infinite, or a tensor that holds just one."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and value.is_floating_point() and bool(value.isinf())
    return isinstance(value, float) and math.isinf(value)


def _seen(reference: Reference, variation: Variation) -> _Seen:
    instance = draw(reference, Draw(0, "normal"), variation)
    seen, asked = _Seen(), _Asked()
    with asked, seen:
        _answers(reference, instance)
    seen.asks = UNDEFINED[0] if asked.asks else INFINITE if asked.asks_for_infinity else ()
    return seen


def _answers(reference: Reference, instance: Instance) -> list[torch.Tensor]:
    arguments = clone_arguments(instance.arguments, fresh)
    return reference.outputs(copy.deepcopy(instance.model), arguments)


def _undefined(
    reference: Reference, variation: Variation, asks: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Return which of these each input may hold with numbers for answers."""
    found: dict[str, tuple[str, ...]] = {}
    inputs = reference.instance(0).inputs
    floating = [name for name, each in inputs.items() if each.is_floating_point()]
    for name in floating[:MOST_INPUTS]:
        for each in UNDEFINED:
            if not set(each) <= set(asks):
                continue
            tried = variation.model_copy(update={"undefined": found | {name: each}})
            if _answers_with_numbers(reference, tried):
                found[name] = each
                break
    return found


def _answers_with_numbers(reference: Reference, variation: Variation) -> bool:
    try:
        answers = _answers(reference, draw(reference, Draw(5, "zeros"), variation))
    except (ReferenceFault, RuntimeError):
        return False
    floating = [answer for answer in answers if answer.is_floating_point()]
    return all(answer.abs().max() < LARGEST for answer in floating if answer.numel())


def _is_guarded(reference: Reference, variation: Variation, survives: Survives) -> bool:
    """Say whether answers to zeros are numbers only because forward() guards against zeros."""
    tried = variation.model_copy(update={"guarded": True})
    how = Draw(4, "constant")
    if not survives(tried, [how, Draw(6, "offset", 4.0)]):
        return False
    for branch in (1, 2):
        instance = draw(reference, how, tried)
        try:
            with _Unguarded(branch):
                answers = _answers(reference, instance)
        except (ReferenceFault, RuntimeError):
            continue
        if not all_finite(answers):
            return True
    return False


class _Unguarded(TorchDispatchMode):  # type: ignore[misc]
    """Has guards hand on what they are given, and choices be always the same one."""

    def __init__(self, branch: int) -> None:
        super().__init__()
        self._branch = branch

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        answer = function(*args, **(kwargs or {}))
        packet = function.overloadpacket
        place = 0 if packet in _GUARDS else self._branch if packet is _aten.where else None
        if place is None or len(args) <= place or not isinstance(args[place], torch.Tensor):
            return answer
        if not isinstance(answer, torch.Tensor) or not answer.is_floating_point():
            return answer
        try:
            return args[place].to(answer.dtype).expand(answer.shape).clone()
        except RuntimeError:
            return answer

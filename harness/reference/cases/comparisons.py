"""Finds the numbers that forward() compares its inputs with, and those its losses pass over.

Seen on one call of it.

An operation of COMPARING holds what it is given against numbers. What it is given is an input, or
something that every kernel finds exactly as PyTorch does: an input negated, its magnitude, times a
power of two, with a number added, or its elements in other places (passed_on.py). Behind all else a
number beside a border is rounding.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from ..drawing.borders import LARGEST
from ..loading.model import (
    Instance,
    Reference,
    ReferenceFault,
    clone_arguments,
    lacks_memory,
)
from .case import fresh
from .passed_on import passed_on

MOST = 8
"""Numbers that are told; a task that compares with more has some of them tried."""
DISTINCT = 4 * MOST
"""A tensor of more different numbers holds data, not borders."""
LOOKED_AT = 1 << 16
"""Of a larger tensor a part is looked at, as it may have gigabytes."""

_aten = torch.ops.aten


def _numbers(*places: int) -> Callable[[Sequence[Any]], list[Any]]:
    return lambda args: [args[place] for place in places if place < len(args)]


def _always(*numbers: float) -> Callable[[Sequence[Any]], list[Any]]:
    return lambda args: list(numbers)


def _multiples(args: Sequence[Any]) -> list[Any]:
    """Return where a quotient or a remainder steps, of the first times."""
    return [times * each for each in _as_numbers(args[1]) for times in (1, 2)]


def _softplus(args: Sequence[Any]) -> list[Any]:
    beta = args[1] if len(args) > 1 else 1.0
    return [(args[2] if len(args) > 2 else 20.0) / beta]


COMPARING: dict[Any, Callable[[Sequence[Any]], list[Any]]] = {
    **dict.fromkeys(
        (_aten.gt, _aten.ge, _aten.lt, _aten.le, _aten.eq, _aten.ne, _aten.threshold,
         _aten.clamp_min, _aten.clamp_max, _aten.maximum, _aten.minimum, _aten.fmax, _aten.fmin),
        _numbers(1),
    ),
    **dict.fromkeys((_aten.clamp, _aten.hardtanh), _numbers(1, 2)),
    **dict.fromkeys(
        (_aten.hardshrink, _aten.softshrink),
        lambda args: [args[1] if len(args) > 1 else 0.5],
    ),
    **dict.fromkeys((_aten.relu, _aten.abs), _always(0.0)),
    **dict.fromkeys((_aten.hardsigmoid, _aten.hardswish), _always(3.0)),
    **dict.fromkeys((_aten.round, _aten.frac), _always(0.5, 1.5, 2.5)),
    **dict.fromkeys((_aten.floor, _aten.ceil, _aten.trunc), _always(1.0, 2.0)),
    **dict.fromkeys((_aten.remainder, _aten.fmod, _aten.floor_divide), _multiples),
    _aten.histc: _numbers(2, 3),
    _aten.softplus: _softplus,
    _aten.bucketize: _numbers(1),
}  # fmt: skip
"""Operations that compare what they are given first, and with which numbers."""

_LOSSES = frozenset((_aten.nll_loss_forward, _aten.nll_loss2d_forward))
"""The last of what they are given is a class that is passed over."""

_MULTILABEL = _aten.multilabel_margin_loss_forward
"""Labels of a row end at the first of -1."""
_BAGS = frozenset((_aten._embedding_bag, _aten._embedding_bag_forward_only))
"""The ninth of what they are given is a row that is passed over; below zero none is."""

HOLDING = frozenset((
    _aten.clamp, _aten.clamp_min, _aten.clamp_max, _aten.maximum, _aten.minimum, _aten.relu,
    _aten.abs,
))  # fmt: skip
"""Operations that say themselves what becomes of all that lies beyond a number."""

NAMING: dict[Any, tuple[tuple[int, int], ...]] = {
    **dict.fromkeys((_aten.eq, _aten.ne), ((0, 0),)),
    **dict.fromkeys(HOLDING, ((0, 0), (-1, -1), (1, 1))),
    **dict.fromkeys((_aten.gt, _aten.le), ((0, -1), (1, 1))),
    **dict.fromkeys((_aten.ge, _aten.lt), ((-1, -1), (0, 1))),
}  # fmt: skip
"""Operations that name an integer: how far from it lies each that is meant, and its side."""

_NAMES = ("min", "max", "other", "lambd", "threshold", "min_val", "max_val")
"""Arguments that hold what is compared with, where they are named."""

_PUTS = frozenset((_aten.copy, _aten.fill, _aten.zero))
"""Operations that put other elements into a part of a tensor, perhaps, and leave the rest."""


class Named(NamedTuple):
    """An integer that forward() names."""

    number: int
    side: int = 0
    """-1 where it is the first of all that lie below a border, 1 of those above; 0 by itself."""
    held: bool = False
    """Whether an operation of HOLDING names it."""


class Comparisons(NamedTuple):
    """What forward() compares its inputs with."""

    borders: tuple[tuple[float, int], ...] = ()
    """Magnitudes that elements of inputs are compared with, 0 left out, and how many units in the
    last place beside each are told from it whatever is added."""
    named: Mapping[str, tuple[Named, ...]] = MappingProxyType({})
    """Of inputs of integers, by name, single numbers that forward() compares elements with or its
    losses pass over, and what is first on the other side of one."""


def comparisons_of(reference: Reference, instance: Instance) -> Comparisons:
    """Return what elements of inputs are compared with.

    The instance stays as it is. Where forward() fails there is none; raises ReferenceFault where
    memory is what it lacks: another time there would be some.
    """
    arguments = clone_arguments(instance.arguments, fresh)
    names = {id(tensor): name for name, tensor in instance.inputs.items()}
    watched = _Compared([
        (names.get(id(own), ""), each)
        for own, each in zip(instance.arguments, arguments, strict=True)
        if isinstance(each, torch.Tensor)
    ])  # fmt: skip
    try:
        with watched:
            reference.outputs(copy.deepcopy(instance.model), arguments)
    except ReferenceFault as fault:
        if lacks_memory(fault):
            raise
        return Comparisons()
    named = {
        name: tuple(numbers.values()) for name, numbers in watched.named.items()
        if name and is_whole(instance.inputs[name])
    }  # fmt: skip
    return Comparisons(tuple(watched.found.items())[:MOST], named)


def is_whole(tensor: torch.Tensor) -> bool:
    """Say whether a tensor holds integers, and no flags."""
    floating = tensor.is_floating_point() or tensor.is_complex()
    return not floating and tensor.dtype is not torch.bool


class _Followed(NamedTuple):
    """A tensor that is an input times a power of two, and something added."""

    factor: float
    added: float
    source: str
    """Name of the input."""


class _Compared(TorchDispatchMode):  # type: ignore[misc]
    """Follows inputs through what changes them exactly; notes what they are compared with."""

    def __init__(self, inputs: Sequence[tuple[str, torch.Tensor]]) -> None:
        super().__init__()
        self.found: dict[float, int] = {}
        self.named: dict[str, dict[int, Named]] = {}
        self._followed = WeakTensorKeyDictionary(
            {each: (_Followed(1.0, 0.0, name),) for name, each in inputs}
        )
        """Tensors as long as forward() keeps them, and what of their elements is exactly."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        answer = function(*args, **(kwargs or {}))
        operation = _in_new_memory(function)
        is_rounded = "rounding_mode" in (kwargs or {})
        for second in self._known(args[1:2]):
            self._compare_second(second, operation, args)
        known = self._known(args[:1])
        numbers = _multiples if is_rounded else COMPARING.get(operation)
        if known and numbers is not None:
            given = [*numbers(args), *(
                value for name, value in (kwargs or {}).items() if name in _NAMES
            )]  # fmt: skip
            for each in known:
                self._note(each, args[0], given)
                if not is_rounded and operation in NAMING:
                    self._name(each, given, NAMING[operation], held=operation in HOLDING)
        # Of several pieces the first: a number is drawn anywhere in an input, and others may count
        # it from the end.
        written = answer[0] if isinstance(answer, tuple | list) and answer else answer
        if function.is_view and isinstance(written, torch.Tensor):
            self._followed[written] = known
        elif isinstance(written, torch.Tensor):
            passed = self._known(passed_on(operation, args))
            if function._schema.is_mutable:
                self._rewrite(operation, written, passed)
            elif passed:
                self._followed[written] = passed
            if known and not is_rounded and not passed:
                alpha = (kwargs or {}).get("alpha", args[2] if len(args) > 2 else 1)
                self._follow(operation, args, alpha, known, written)
        return answer

    def _compare_second(self, second: _Followed, operation: Any, args: Sequence[Any]) -> None:
        """Note what an operation compares the second of what it is given with."""
        if operation is _aten.searchsorted:
            self._note(second, args[1], args[:1])
        elif operation in _LOSSES:
            self._note(second, args[1], args[4:])
            self._name(second, args[4:])
        elif operation is _MULTILABEL:
            self._name(second, [-1])
        elif operation in _BAGS:
            self._note(second, args[1], [each for each in args[8:9] if each >= 0])

    def _known(self, arguments: Iterable[Any]) -> tuple[_Followed, ...]:
        found: dict[_Followed, None] = {}
        for each in arguments:
            if isinstance(each, torch.Tensor):
                found |= dict.fromkeys(self._followed.get(each, ()))
        return tuple(found)[:MOST]

    def _rewrite(
        self, operation: Any, written: torch.Tensor, passed: Sequence[_Followed]
    ) -> None:
        """Follow what lies where something was written as what was passed on to there."""
        place = written.untyped_storage().data_ptr()
        there = [each for each in tuple(self._followed)
                 if each.untyped_storage().data_ptr() == place]  # fmt: skip
        if operation in _PUTS:
            passed = (*passed, *self._known(there))
        for tensor in there:
            del self._followed[tensor]
        if passed:
            for tensor in (written, written._base):
                if tensor is not None:
                    self._followed[tensor] = tuple(dict.fromkeys(passed))[:MOST]

    def _name(
        self,
        known: _Followed,
        numbers: Sequence[Any],
        beside: Sequence[tuple[int, int]] = ((0, 0),),
        *,
        held: bool = False,
    ) -> None:
        """Note single numbers that stand in forward(); a tensor may be an input, or made of one."""
        for number in numbers:
            for each in () if isinstance(number, torch.Tensor) else _as_numbers(number):
                for off, way in beside:
                    meant = (each + off - known.added) / known.factor
                    if math.isfinite(meant) and meant == int(meant):
                        named = Named(int(meant), way if known.factor > 0 else -way, held)
                        self.named.setdefault(known.source, {}).setdefault(named.number, named)

    def _note(
        self, known: _Followed, compared: torch.Tensor, numbers: Sequence[Any]
    ) -> None:
        factor, added, _ = known
        # Integers are what their range holds: a token that is masked may be any.
        largest = LARGEST if compared.is_floating_point() else math.inf
        for number in numbers:
            for each in _as_numbers(number):
                border = abs((each - added) / factor)
                if 0.0 < border <= largest and math.isfinite(border):
                    units = 1
                    if added:  # What is added rounds the rest to its own last place.
                        most = math.frexp(max(abs(each), abs(added)))[1]
                        units = 2 << max(0, most - math.frexp(border * factor)[1])
                    self.found[border] = max(units, self.found.get(border, 1))

    def _follow(
        self,
        operation: Any,
        args: Any,
        alpha: float,
        known: Sequence[_Followed],
        answer: torch.Tensor,
    ) -> None:
        numbers = _as_numbers(args[1]) if len(args) > 1 else []
        number = numbers[0] if len(numbers) == 1 else None
        found = [_changed(each, operation, number, alpha) for each in known]
        if any(found):
            self._followed[answer] = tuple(each for each in found if each is not None)


def _changed(
    known: _Followed, operation: Any, number: float | None, alpha: float
) -> _Followed | None:
    """Return what an operation with a number makes of elements; None where it may round them."""
    factor, added, source = known
    if operation is _aten.abs:  # Of a magnitude both signs are tried anyway.
        return known
    if operation is _aten.neg:
        return _Followed(-factor, -added, source)
    if number is None or not math.isfinite(number):
        return None
    if operation in (_aten.mul, _aten.div) and number and math.frexp(abs(number))[0] == 0.5:
        times = number if operation is _aten.mul else 1 / number
        return _Followed(factor * times, added * times, source)
    if operation in (_aten.add, _aten.sub):
        more = alpha * (number if operation is _aten.add else -number)
        return _Followed(factor, added + more, source)
    if operation is _aten.rsub and alpha == 1:
        return _Followed(-factor, number - added, source)
    return None


def _in_new_memory(function: Any) -> Any:
    """Return an operation; of one that writes to what it is given the one that does not."""
    packet = function.overloadpacket
    name = str(packet.__name__)
    return getattr(_aten, name.removesuffix("_"), packet) if name.endswith("_") else packet


def _as_numbers(value: Any) -> list[float]:
    """Return the different numbers that something to compare with holds, none of mere data."""
    if isinstance(value, torch.Tensor):
        if value.is_complex() or value.device.type == "meta":
            return []
        part = value.detach()
        while part.numel() > LOOKED_AT:
            part = part[0] if part.dim() > 1 else part[:LOOKED_AT]
        distinct = part.unique()
        return [] if len(distinct) > DISTINCT else [float(each) for each in distinct.tolist()]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []

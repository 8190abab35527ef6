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
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from ...records.parts import Part, Span, joined
from ..drawing.borders import LARGEST
from ..loading.model import (
    Instance,
    Reference,
    ReferenceFault,
    clone_arguments,
    lacks_memory,
)
from .case import fresh
from .passed_on import ELEMENTWISE, passed_on

MOST = 128
"""Numbers that are told; a task that compares with more has some of them tried."""
DISTINCT = 128
"""A tensor of more different numbers holds data, not borders."""
ASKED_FOR = 8
"""Integers of one tensor that each stand for themselves, at most."""
LOOKED_AT = 1 << 16
"""Of a larger tensor a part is looked at, as it may have gigabytes."""
MOST_FOLLOWED = 8
"""Inputs, factors and pieces that one tensor is followed as."""
MOST_PLACES = 1 << 22
"""Elements of an input of integers whose parts are told apart."""

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
    **dict.fromkeys((_aten.bucketize, _aten.isin), _numbers(1)),
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
    **dict.fromkeys((_aten.eq, _aten.ne, _aten.isin), ((0, 0),)),
    **dict.fromkeys(HOLDING, ((0, 0), (-1, -1), (1, 1))),
    **dict.fromkeys((_aten.gt, _aten.le), ((0, -1), (1, 1))),
    **dict.fromkeys((_aten.ge, _aten.lt), ((-1, -1), (0, 1))),
}  # fmt: skip
"""Operations that name an integer: how far from it lies each that is meant, and its side."""

_THE_OTHER_WAY: dict[Any, Any] = {
    **{each: each for each in (
        _aten.eq, _aten.ne, _aten.maximum, _aten.minimum, _aten.fmax, _aten.fmin,
    )},
    _aten.gt: _aten.lt, _aten.lt: _aten.gt, _aten.ge: _aten.le, _aten.le: _aten.ge,
}  # fmt: skip
"""Operations that compare two tensors: which says the same of them, the second one first."""

_NAMES = ("min", "max", "other", "lambd", "threshold", "min_val", "max_val")
"""Arguments that hold what is compared with, where they are named."""

_FILLING = frozenset((
    _aten.full_like, _aten.new_full, _aten.zeros_like, _aten.new_zeros, _aten.ones_like,
    _aten.new_ones,
))  # fmt: skip
"""Operations that take from what they are given its kind alone."""

_PUTS = frozenset((_aten.copy, _aten.fill, _aten.zero))
"""Operations that put other elements into a part of a tensor, perhaps, and leave the rest."""


class Named(NamedTuple):
    """An integer that forward() names."""

    number: int
    side: int = 0
    """-1 where it is the first of all that lie below a border, 1 of those above; 0 by itself."""
    held: bool = False
    """Whether an operation of HOLDING names it."""
    part: Part = ()
    """Of the input, all that it is named for."""


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
    part: Part = ()
    """In which these elements lie there."""


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
        self._made_of = WeakTensorKeyDictionary({each: True for _, each in inputs})
        """Those that any input had a part in."""
        self._shapes = {name: each.shape for name, each in inputs}
        self._places = WeakTensorKeyDictionary({
            each: torch.arange(each.numel(), device=each.device).view(each.shape)
            for _, each in inputs if is_whole(each) and 0 < each.numel() <= MOST_PLACES
        })  # fmt: skip
        """Where in its input each element lies, of those that are one by one an input's."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        answer = function(*args, **(kwargs or {}))
        operation = _in_new_memory(function)
        made_of = any(each in self._made_of for each in _tensors((args, kwargs)))
        if made_of and operation not in _FILLING:
            self._made_of.update(dict.fromkeys(_tensors(answer), True))
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
        written = answer[0] if isinstance(answer, tuple | list) and answer else answer
        if function.is_view:
            self._view(function, args, kwargs or {}, known, _tensors(answer))
        elif isinstance(written, torch.Tensor):
            passed = self._known(passed_on(operation, args))
            if function._schema.is_mutable:
                self._rewrite(operation, written, passed)
            elif passed:
                self._followed[written] = passed
                if operation in ELEMENTWISE and args[0] in self._places:
                    self._places[written] = self._places[args[0]]
            if known and not is_rounded and not passed:
                alpha = (kwargs or {}).get("alpha", args[2] if len(args) > 2 else 1)
                self._follow(operation, args, alpha, known, written)
        return answer

    def _view(
        self, function: Any, args: Any, kwargs: dict[str, Any], known: Sequence[_Followed],
        pieces: Sequence[torch.Tensor],
    ) -> None:  # fmt: skip
        """Follow pieces of a tensor; where they lie is not known, the first: a number is drawn
        anywhere then, and what others hold may be counted from the end."""
        places: Sequence[torch.Tensor] = ()
        if args and args[0] in self._places and function is not torch.ops.aten.view.dtype:
            places = _tensors(function(self._places[args[0]], *args[1:], **kwargs))
        for piece, where in zip(pieces, places, strict=False):
            self._places[piece] = where
            self._followed[piece] = tuple(
                each._replace(part=_part(where, self._shapes[each.source])) for each in known
            )
        for piece in () if places else pieces[:1]:
            self._followed[piece] = tuple(known)

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
        elif operation in _THE_OTHER_WAY:
            self._note(second, args[1], args[:1])
            beside = NAMING.get(_THE_OTHER_WAY[operation], ())
            self._name(second, args[:1], beside, held=operation in HOLDING)

    def _known(self, arguments: Iterable[Any]) -> tuple[_Followed, ...]:
        found: dict[_Followed, None] = {}
        for each in arguments:
            if isinstance(each, torch.Tensor):
                found |= dict.fromkeys(self._followed.get(each, ()))
        return tuple(found)[:MOST_FOLLOWED]

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
            self._places.pop(tensor, None)
        if passed:
            for tensor in (written, written._base):
                if tensor is not None:
                    self._followed[tensor] = tuple(dict.fromkeys(passed))[:MOST_FOLLOWED]

    def _name(
        self,
        known: _Followed,
        numbers: Sequence[Any],
        beside: Sequence[tuple[int, int]] = ((0, 0),),
        *,
        held: bool = False,
    ) -> None:
        """Note single numbers that stand in forward(), or in a tensor that no input has a part in;
        of several there those alone that it asks for one by one."""
        most = ASKED_FOR if beside == ((0, 0),) else 1
        of_source = self.named.setdefault(known.source, {})
        for number in numbers:
            if isinstance(number, torch.Tensor) and number in self._made_of:
                continue
            numbers_of = _as_numbers(number)
            for each in numbers_of if len(numbers_of) <= most else ():
                for off, way in beside:
                    meant = (each + off - known.added) / known.factor
                    if math.isfinite(meant) and meant == int(meant):
                        side = way if known.factor > 0 else -way
                        named = Named(int(meant), side, held, known.part)
                        before = of_source.setdefault(named.number, named)
                        part = joined(before.part, named.part)
                        of_source[named.number] = before._replace(part=part)

    def _note(
        self, known: _Followed, compared: torch.Tensor, numbers: Sequence[Any]
    ) -> None:
        factor, added = known.factor, known.added
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
            if args[0] in self._places and answer.shape == args[0].shape:
                self._places[answer] = self._places[args[0]]


def _changed(
    known: _Followed, operation: Any, number: float | None, alpha: float
) -> _Followed | None:
    """Return what an operation with a number makes of elements; None where it may round them."""
    factor, added = known.factor, known.added
    if operation is _aten.abs:  # Of a magnitude both signs are tried anyway.
        return known
    if operation is _aten.neg:
        return known._replace(factor=-factor, added=-added)
    if number is None or not math.isfinite(number):
        return None
    if operation in (_aten.mul, _aten.div) and number and math.frexp(abs(number))[0] == 0.5:
        times = number if operation is _aten.mul else 1 / number
        return known._replace(factor=factor * times, added=added * times)
    if operation in (_aten.add, _aten.sub):
        more = alpha * (number if operation is _aten.add else -number)
        return known._replace(added=added + more)
    if operation is _aten.rsub and alpha == 1:
        return known._replace(factor=-factor, added=number - added)
    return None


def _tensors(value: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(value) if isinstance(each, torch.Tensor)]


def _part(places: torch.Tensor, shape: Sequence[int]) -> Part:
    """Return the part of a tensor of a shape in which some places of it lie."""
    if not places.numel():
        return ()
    found = []
    for axis, at in enumerate(torch.unravel_index(places, tuple(shape))):
        first, end = int(at.min()), int(at.max()) + 1
        if end - first < shape[axis]:
            found.append(Span(axis, first, end, shape[axis]))
    return tuple(found)


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

"""Where does an answer make a step? What is rounded to whole numbers, or compared, near a tie.

A number that is computed in floating point and then rounded, or compared with another, is a step
off where it lies so near a tie that rounding before decides; any kernel may find another answer
there than PyTorch. So a task's answers are found twice more, in double precision, with all that is
rounded or compared moved up and down by a part of what numbers of its type may be off. How far that
moves an answer is the step, and of how many elements it moves one the share: as many may be a step
off.

What is exact is not moved: an input, a whole number, zero. Where an operation divides and then
rounds (a remainder too) it is the quotient that is moved, of exact numbers too, unless it is one:
some kernels divide, others multiply. Of two numbers that are compared the first that is not exact;
of numbers that are ranked (the index of a maximum, the first few of an order) every other one up,
and those between down.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...task.rules import TOLERANCES
from ..loading.model import Instance, Reference, ReferenceFault, clone_arguments
from .double_precision import double_run

_aten = torch.ops.aten

_ONE_STEP = frozenset(("frac", "remainder", "fmod"))
"""What is left of a division: less than one step, however far the quotient is off."""
DIVIDED = _ONE_STEP | {
    "floor_divide", "div", "divide", "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "fake_quantize_per_tensor_affine_cachemask", "fake_quantize_per_channel_affine_cachemask",
    "_fake_quantize_learnable_per_tensor_affine", "_fake_quantize_learnable_per_channel_affine",
}  # fmt: skip
"""Operations that divide by what they are given second and round what comes of it."""
ROUNDED = {
    **dict.fromkeys(("round", "floor", "ceil", "trunc", "fix", "_to_copy", *DIVIDED), (0,)),
    "copy": (1,),
}
"""Operations that round, and at which place what they do it to is given."""
COMPARED = {
    **dict.fromkeys(("gt", "ge", "lt", "le", "bucketize"), (0, 1)),
    **dict.fromkeys(("sign", "sgn", "signbit", "heaviside", "threshold", "hardshrink"), (0,)),
    "searchsorted": (1, 0), "copysign": (1,),
}  # fmt: skip
"""Operations that compare, and at which places what they compare is given."""
MOVING = frozenset((
    _aten.clone, _aten.copy_, _aten.cat, _aten.stack, _aten.index, _aten.index_select,
    _aten.gather, _aten.embedding, _aten.constant_pad_nd, _aten.flip, _aten.roll,
))  # fmt: skip
"""Operations that compute nothing: what they answer is as exact as what they are given."""
CHOOSING = frozenset((
    "amax", "amin", "aminmax", "max", "min", "cummax", "cummin", "topk", "sort", "kthvalue",
    "median", "nanmedian", "mode", "max_pool2d_with_indices", "max_pool3d_with_indices",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "fractional_max_pool2d",
))  # fmt: skip
"""Operations that answer with some of the numbers that they are given."""
RANKED = {"argmax": 1, "argmin": 1, "max": 1, "min": 1, "sort": 1, "topk": 2, "kthvalue": 2}
"""Operations that tell where in an order floating numbers lie, and at which place the axis is given
along which they do."""
PART = 0.25
"""Of what numbers of a type may be off, what is allowed for here: most are off by far less, and
numbers of half the precision make more steps than this."""
MOST_STEPPED = 0.05
"""Share of the elements beyond which their steps are no exceptions."""


class Steps(NamedTuple):
    """What rounding makes of one output."""

    exact: torch.Tensor
    """The answer in double precision; PyTorch's own where it makes a step."""
    size: float
    """How far an element is off that makes one: floating ones at most, whole ones mostly."""
    least: float
    """And at least."""
    share: float
    """Of the elements, those that may make one."""


def rounds(function: Any, args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Say whether an operation rounds floating numbers, or a quotient of them, to whole ones."""
    name = _name(function)
    if name not in ROUNDED or not any(
        _is_floating(each) or (isinstance(each, float) and name in DIVIDED) for each in args[:2]
    ):
        return False
    if name == "_to_copy":
        return named.get("dtype") is not None and _is_whole(named["dtype"])
    if name == "copy":
        return _is_whole(args[0].dtype)
    return name not in ("div", "divide") or named.get("rounding_mode") is not None


def compares(function: Any, args: Sequence[Any]) -> bool:
    """Say whether an operation tells on which side of a border floating numbers lie."""
    places = COMPARED.get(_name(function), ())
    return any(_is_floating(args[place]) for place in places if place < len(args))


def ranks(function: Any, args: Sequence[Any]) -> bool:
    """Say whether an operation answers with the places of floating numbers in an order."""
    name = _name(function)
    if name not in RANKED or not _is_floating(args[0]) or not args[0].dim():
        return False
    return name not in ("max", "min") or function._overloadname == "dim"


def _axis(function: Any, args: Sequence[Any], named: Mapping[str, Any]) -> int | None:
    """Return the axis along which numbers are ranked; None for all of them."""
    place = RANKED[_name(function)]
    default = None if _name(function).startswith("arg") else -1
    axis = args[place] if place < len(args) else named.get("dim", default)
    return None if axis is None else int(axis)


def _name(function: Any) -> str:
    """Return an operation's name, the same where it writes to what it is given."""
    return str(function.overloadpacket.__name__).removesuffix("_")


def _is_whole(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and not dtype.is_complex


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _divisor(function: Any, args: Sequence[Any]) -> Any:
    """Return what an operation divides by before it rounds; None where it does not."""
    name = _name(function)
    if name == "frac":
        return 1.0
    if name not in DIVIDED:
        return None
    divisor = args[1]
    if "per_channel" in name:
        shape = [1] * args[0].dim()
        shape[args[3]] = -1
        divisor = divisor.reshape(shape)
    return divisor


def steps_of(
    reference: Reference, instance: Instance, model: torch.nn.Module,
    answers: Sequence[torch.Tensor],
) -> list[Steps | None]:
    """Return the steps of each output, None for one that makes none, or where that is not known."""
    try:
        with _Types() as types:
            reference.outputs(
                copy.deepcopy(model), clone_arguments(instance.arguments, torch.clone)
            )
        exact, *others = (
            double_run(reference, model, instance.arguments, mode)
            for mode in (None, _Moved(types.found, 1.0), _Moved(types.found, -1.0))
        )
        return [
            _steps(*each, ranked=types.ranked) if len({one.shape for one in each}) == 1 else None
            for each in zip(answers, exact, *others, strict=True)
        ]
    except (ReferenceFault, RuntimeError):  # Memory is short, or the model insists on its own type.
        return [None] * len(answers)


def _steps(
    answer: torch.Tensor, exact: torch.Tensor, *moved: torch.Tensor, ranked: bool
) -> Steps | None:
    # PyTorch's own rounding steps too.
    ends = moved if answer.is_floating_point() else (*moved, exact)
    center = (exact if answer.is_floating_point() else answer).double()
    off = torch.stack([(each.double() - center).abs() for each in ends]).amax(0)
    off = off.nan_to_num(0.0, 0.0)  # A step to infinity is no room for other numbers.
    base = TOLERANCES.get(str(answer.dtype).removeprefix("torch."))
    near = base.absolute + base.relative * center.abs() if base else torch.zeros_like(center)
    stepped = off > near
    if not bool(stepped.any()):
        return None
    share, least = float(stepped.double().mean()), float(off[stepped].min())
    if ranked and not answer.is_floating_point():
        # How far apart places in an order are says nothing: few may be any, and never many.
        usual, least, share = off.max(), 1.0, min(share, MOST_STEPPED)
    elif answer.is_floating_point():
        usual = off.max()
    else:  # Whole numbers wrap (int8, a remainder): where few do, that is no room for the others.
        usual = off[stepped].median()
    exact = torch.where(stepped, answer.double(), exact.double())
    return Steps(exact, float(usual), least, share)


class _Types(TorchDispatchMode):  # type: ignore[misc]
    """Notes how precise each number is that is rounded or compared, in order: as the least precise
    type that anything was computed in before it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[torch.dtype] = []
        self.ranked = False
        """Whether anything is ranked."""
        self._least: torch.dtype | None = None

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        ranked = ranks(function, args)
        self.ranked |= ranked
        if ranked or rounds(function, args, named) or compares(function, args):
            given = next((each.dtype for each in args if _is_floating(each)), torch.float32)
            self.found.append(self._least or given)
        answer = function(*args, **named)
        if isinstance(answer, torch.Tensor) and answer.is_floating_point():
            operation = function.overloadpacket
            widens = operation is _aten._to_copy and (
                args[0].is_floating_point() and _unit(answer.dtype) <= _unit(args[0].dtype)
            )
            if not (function.is_view or operation in MOVING or widens):
                self._least = max(self._least or answer.dtype, answer.dtype, key=_unit)
        return answer


def _unit(dtype: torch.dtype) -> float:
    return float(torch.finfo(dtype).eps)


class _Moved(TorchDispatchMode):  # type: ignore[misc]
    """Moves what is rounded or compared by what numbers of its type may be off, up or down."""

    def __init__(self, dtypes: Sequence[torch.dtype], sign: float) -> None:
        """Prepare; `dtypes` are those of a run as it is, in order. Here all are double."""
        super().__init__()
        self._dtypes, self._sign = iter(dtypes), sign
        self._chosen: dict[int, torch.Tensor] = {}
        """What operations chose from what they were given, by id."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        answer = self._answer(function, args, kwargs or {})
        passed_on = (function.is_view or function.overloadpacket in MOVING) and any(
            id(each) in self._chosen for each in args
        )
        if passed_on or _name(function) in CHOOSING:
            for each in answer if isinstance(answer, tuple) else (answer,):
                if _is_floating(each):
                    self._chosen[id(each)] = each
        return answer

    def _answer(self, function: Any, args: Any, named: Any) -> Any:
        if rounds(function, args, named):
            dtype = next(self._dtypes, torch.float32)
            divisor = _divisor(function, args)
            if divisor is not None:
                return self._divided(function, args, named, divisor, dtype)
            return self._with_one_moved(function, args, named, ROUNDED[_name(function)], dtype)
        if compares(function, args):
            dtype = next(self._dtypes, torch.float32)
            return self._with_one_moved(function, args, named, COMPARED[_name(function)], dtype)
        if ranks(function, args):
            return self._ranked(function, args, named, next(self._dtypes, torch.float32))
        return function(*args, **named)

    def _ranked(self, function: Any, args: Sequence[Any], named: Any, dtype: torch.dtype) -> Any:
        """Answer with the places that numbers have which are moved towards their neighbours.

        The numbers that are answered with them are those that lie there.
        """
        value, axis = args[0], _axis(function, args, named)
        lines = value.flatten() if axis is None else value.movedim(axis, -1)
        places = lines.argsort(dim=-1).argsort(dim=-1)
        up = (1 - 2 * (places % 2)).to(value.dtype)
        up = up.reshape(value.shape) if axis is None else up.movedim(-1, axis)
        off = torch.where(_is_exact(value, dtype), 0.0, up * self._off(value, dtype))
        answer = function(value + off, *args[1:], **named)
        if isinstance(answer, torch.Tensor):
            return answer
        assert axis is not None
        _, index = answer
        kept = index.dim() == value.dim()
        held = value.gather(axis, index if kept else index.unsqueeze(axis))
        return type(answer)((held if kept else held.squeeze(axis), index))

    def _with_one_moved(
        self, function: Any, args: Sequence[Any], named: Any, places: Sequence[int],
        dtype: torch.dtype,
    ) -> Any:
        """Answer with the first moved that is not exact; the other way where it is the border."""
        for sign, place in zip((1.0, -1.0), places, strict=False):
            value: Any = args[place] if place < len(args) else None
            if not _is_floating(value) or bool(_is_exact(value, dtype).all()):
                continue
            off = sign * self._off(value, dtype)
            border: Any = args[1 - place] if len(args) == 2 else None
            if id(border) in self._chosen:
                # A maximum beside those that it is of: who finds the one finds the other.
                off = torch.where(value == border, 0.0, off)
            moved = value + off
            if place == 0 and function.overloadpacket.__name__.endswith("_"):
                value.copy_(moved)
            else:
                args = (*args[:place], moved, *args[place + 1 :])
            break
        return function(*args, **named)

    def _divided(
        self, function: Any, args: Sequence[Any], named: Any, divisor: Any, dtype: torch.dtype
    ) -> Any:
        """Answer with a dividend that makes the quotient another; what is left is of the old one.

        A quotient that is exact, of numbers that are, is what any kernel finds.
        """
        device = next(each.device for each in args if isinstance(each, torch.Tensor))
        kept = {"dtype": torch.float64, "device": device}
        dividend, by = torch.as_tensor(args[0], **kept), torch.as_tensor(divisor, **kept)
        quotient = dividend / by
        exact = _is_exact(dividend, dtype) & _is_exact(by, dtype) & _is_exact(quotient, dtype)
        off = torch.where(exact, 0.0, self._off(quotient, dtype))
        if _name(function) in _ONE_STEP:
            off = off.clamp(-1.0, 1.0)
        moved = off * by
        moved = torch.where(moved.isfinite(), moved, 0.0)
        if function.overloadpacket.__name__.endswith("_"):
            args[0].add_(moved)
            answer = function(*args, **named)
        else:
            answer = function.overloadpacket(dividend + moved, *args[1:], **named)
        if _name(function) in _ONE_STEP:
            answer.sub_(moved)
        return answer

    def _off(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        base = TOLERANCES[str(dtype).removeprefix("torch.")]
        finite = value.isfinite()
        size = float(torch.where(finite, value, 0.0).square().mean().sqrt())
        off = PART * (base.relative * value.abs() + base.absolute * min(1.0, size))
        return self._sign * torch.where(finite & (value != 0), off, 0.0)


def _is_exact(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Say which numbers are what they are in a type: none that was computed in double is."""
    return value.to(dtype).to(value.dtype).nan_to_num() == value.nan_to_num()

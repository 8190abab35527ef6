"""Where does an answer make a step? What is rounded to whole numbers, or compared, near a tie.

A number that is computed in floating point and then rounded, or compared with another, is a step
off where it lies so near a tie that rounding before decides; any kernel may find another answer
there than PyTorch. So a task's answers are found twice more, in double precision, with all that is
rounded or compared moved up and down by a part of what numbers of its type may be off. How far that
moves an answer is the step, and of how many elements it moves one the share: as many may be a step
off.

What is exact is not moved: an input, a whole number, zero.
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

ROUNDING = frozenset((
    _aten.round, _aten.round_, _aten.floor, _aten.floor_, _aten.ceil, _aten.ceil_, _aten.trunc,
    _aten.trunc_, _aten.fix, _aten.floor_divide,
))  # fmt: skip
COMPARING = frozenset((_aten.gt, _aten.ge, _aten.lt, _aten.le, _aten.sign, _aten.bucketize))
MOVING = frozenset((
    _aten.clone, _aten.copy_, _aten.cat, _aten.stack, _aten.index, _aten.index_select,
    _aten.gather, _aten.embedding, _aten.constant_pad_nd, _aten.flip, _aten.roll,
))  # fmt: skip
"""Operations that compute nothing: what they answer is as exact as what they are given."""
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
    """Say whether an operation rounds floating numbers to whole ones."""
    to = named.get("dtype")
    whole = to is not None and not to.is_floating_point and not to.is_complex
    return _is_of_floats(args) and (
        function.overloadpacket in ROUNDING or (function.overloadpacket is _aten._to_copy and whole)
    )


def compares(function: Any, args: Sequence[Any]) -> bool:
    """Say whether an operation tells on which side of a border floating numbers lie."""
    return function.overloadpacket in COMPARING and _is_of_floats(args)


def _is_of_floats(args: Sequence[Any]) -> bool:
    return bool(args) and isinstance(args[0], torch.Tensor) and args[0].is_floating_point()


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
            _steps(*each) if len({one.shape for one in each}) == 1 else None
            for each in zip(answers, exact, *others, strict=True)
        ]
    except (ReferenceFault, RuntimeError):  # Memory is short, or the model insists on its own type.
        return [None] * len(answers)


def _steps(answer: torch.Tensor, exact: torch.Tensor, *moved: torch.Tensor) -> Steps | None:
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
    # Whole numbers wrap (int8, a remainder): where few do, that is no room for the others.
    usual = off.max() if answer.is_floating_point() else off[stepped].median()
    return Steps(
        torch.where(stepped, answer.double(), exact.double()),
        float(usual), float(off[stepped].min()), float(stepped.double().mean()),
    )  # fmt: skip


class _Types(TorchDispatchMode):  # type: ignore[misc]
    """Notes how precise each number is that is rounded or compared, in order: as the least precise
    type that anything was computed in before it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[torch.dtype] = []
        self._least: torch.dtype | None = None

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        if rounds(function, args, named) or compares(function, args):
            self.found.append(self._least or args[0].dtype)
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

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        if rounds(function, args, named) or compares(function, args):
            moved = self._moved(args[0], next(self._dtypes, torch.float32))
            if function.overloadpacket.__name__.endswith("_"):
                args[0].copy_(moved)
            else:
                args = (moved, *args[1:])
        return function(*args, **named)

    def _moved(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if torch.equal(value.to(dtype).to(value.dtype).nan_to_num(), value.nan_to_num()):
            return value
        base = TOLERANCES[str(dtype).removeprefix("torch.")]
        finite = value.isfinite()
        size = float(torch.where(finite, value, 0.0).square().mean().sqrt())
        off = PART * (base.relative * value.abs() + base.absolute * min(1.0, size))
        return value + self._sign * torch.where(finite & (value != 0), off, 0.0)

"""Which of equal keys comes first? Where PyTorch promises nothing, no answer may hang on it.

`sort` without stable=True, `topk`, `kthvalue` and `median` say where what they return lies, and of
equal elements that may be any. A case in which it matters tells nothing of a kernel.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..loading.model import Reference, ReferenceFault, clone_arguments

_aten = torch.ops.aten


class Ordered(TorchDispatchMode):  # type: ignore[misc]
    """Answers operators that look for places so that the first of equal elements comes first, or
    the last.

    Args:
        last: which.
    """

    def __init__(self, last: bool) -> None:
        super().__init__()
        self._last = last

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        found = UNPROMISED.get(function)
        if found is None or named.get("stable") or not args[0].dim():
            return function(*args, **named)
        return found(self._order, *args, **named)

    def _order(self, given: torch.Tensor, axis: int, descending: bool) -> Any:
        """Return values and places of a sort along an axis."""
        if not self._last:
            return given.sort(stable=True, dim=axis, descending=descending)
        values, places = given.flip(axis).sort(stable=True, dim=axis, descending=descending)
        return values, given.shape[axis] - 1 - places


Order = Callable[[torch.Tensor, int, bool], Any]


def _topk(
    order: Order, given: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    values, places = order(given, dim, largest)
    return values.narrow(dim, 0, k).contiguous(), places.narrow(dim, 0, k).contiguous()


def _sort(
    order: Order, given: Any, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> Any:
    return order(given, dim, descending)


def _kth(order: Order, given: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    values, places = (each.narrow(dim, k - 1, 1) for each in order(given, dim, False))
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def _median(order: Order, given: Any, dim: int, keepdim: bool = False) -> Any:
    return _kth(order, given, (given.shape[dim] + 1) // 2, dim, keepdim)


UNPROMISED: dict[Any, Callable[..., Any]] = {
    _aten.topk.default: _topk, _aten.sort.default: _sort, _aten.sort.stable: _sort,
    _aten.kthvalue.default: _kth, _aten.median.dim: _median,
}  # fmt: skip
"""How each operator that leaves it open is answered in a given order."""


def hang_on_ties(reference: Reference, model: torch.nn.Module, arguments: Sequence[Any]) -> bool:
    """Say whether answers are others where another one of equal elements comes first.

    Model and arguments stay as they are. Where memory is short for it, it is taken not to be so.
    """
    try:
        first, last = (
            _answers(reference, copy.deepcopy(model), arguments, Ordered(last))
            for last in (False, True)
        )
    except ReferenceFault:
        return False
    return not all(map(_are_alike, first, last))


def _answers(
    reference: Reference, model: torch.nn.Module, arguments: Sequence[Any], mode: Ordered
) -> list[torch.Tensor]:
    with mode:
        return reference.outputs(model, clone_arguments(arguments, torch.clone))


def _are_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Say whether answers differ by no more than adding in another order makes them."""
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return bool(torch.equal(one, other))
    scale = float(other.double().square().mean().sqrt().nan_to_num(0.0, 0.0, 0.0))
    near = torch.allclose(one.double(), other.double(), 1e-3, 1e-3 * scale, equal_nan=True)
    return bool(near)

"""Sums of one term after the other in single precision: what a plain kernel makes of them.

PyTorch adds in blocks, on the CPU often in double precision. `IN_ORDER` answers the operations that
reduce, on the CPU, as a kernel does that has one thread for each sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

_aten = torch.ops.aten

InOrder = Callable[[Any, Any, dict[str, Any], bool], Any]
"""Takes an operation, its arguments in order and by name, and whether the last term comes first;
None where it cannot tell."""


def add_in_order(
    terms: torch.Tensor, axes: Sequence[int], *, keep: bool, backwards: bool = False
) -> torch.Tensor:
    """Return sums along axes, all of them where none is named, in single precision.

    Args:
        terms: what is added, on the CPU.
        axes: along which.
        keep: whether these axes stay, with one place each.
        backwards: whether the last term comes first.
    """
    axes = [axis % terms.dim() for axis in axes] or list(range(terms.dim()))
    rest = [axis for axis in range(terms.dim()) if axis not in axes]
    count = math.prod(terms.shape[axis] for axis in axes)
    rows = terms.float().permute(*axes, *rest).reshape(count, -1).numpy()
    # Unlike sum(), accumulate() never adds in pairs.
    partial = np.add.accumulate(rows[::-1] if backwards else rows, axis=0)
    kept = [1 if axis in axes else size for axis, size in enumerate(terms.shape)]
    shape = kept if keep else [terms.shape[axis] for axis in rest]
    return torch.from_numpy(partial[-1].copy()).reshape(shape)


def _sum(function: Any, args: Any, named: dict[str, Any], backwards: bool) -> Any:
    keep = bool(args[2]) if len(args) > 2 else False
    return add_in_order(args[0], _axes(args, 1), keep=keep, backwards=backwards)


def _mean(function: Any, args: Any, named: dict[str, Any], backwards: bool) -> Any:
    total = _sum(function, args, named, backwards)
    return total / (args[0].numel() / max(1, total.numel()))


def _spread(function: Any, args: Any, named: dict[str, Any], backwards: bool) -> Any:
    """Variances and standard deviations, in two passes."""
    if function._overloadname != "correction":
        return None
    axes, values = _axes(args, 1), args[0].float()
    total = add_in_order(values, axes, keep=True, backwards=backwards)
    count = values.numel() / max(1, total.numel())
    mean = total / count
    correction = named.get("correction")
    keep = bool(named.get("keepdim", False))
    squares = add_in_order((values - mean).square(), axes, keep=keep, backwards=backwards)
    found = squares / (count - (1 if correction is None else correction))
    operation = function.overloadpacket
    if operation in (_aten.std, _aten.std_mean):
        found = found.sqrt()
    if operation in (_aten.var, _aten.std):
        return found
    return found, mean.reshape(found.shape)


def _norm(function: Any, args: Any, named: dict[str, Any], backwards: bool) -> Any:
    order = args[1] if len(args) > 1 else 2
    if order not in (1, 2):
        return None
    values = args[0].float()
    terms = values.square() if order == 2 else values.abs()
    keep = bool(args[3]) if len(args) > 3 else False
    total = add_in_order(terms, _axes(args, 2), keep=keep, backwards=backwards)
    return total.sqrt() if order == 2 else total


def _softmax(function: Any, args: Any, named: dict[str, Any], backwards: bool) -> Any:
    values = args[0].float()
    powers = (values - values.amax(args[1], keepdim=True)).exp()
    return powers / add_in_order(powers, [args[1]], keep=True, backwards=backwards)


def _scan(function: Any, args: Any, named: dict[str, Any], backwards: bool) -> Any:
    """Running sums and products; the last of them hangs on the first term either way."""
    if not args[0].dim():
        return None
    accumulate = np.multiply.accumulate if function.overloadpacket in FACTORS else np.add.accumulate
    return torch.from_numpy(accumulate(args[0].float().numpy(), axis=args[1]))


def _product(function: Any, args: Any, named: dict[str, Any], backwards: bool) -> Any:
    axes = _axes(args, 1)
    values = args[0].float() if axes else args[0].float().reshape(-1)
    if not values.numel() or not values.dim():
        return None
    axis = (axes or [0])[0] % values.dim()
    order = values.flip(axis) if backwards else values
    last = np.multiply.accumulate(order.numpy(), axis=axis).take([-1], axis=axis)
    found = torch.from_numpy(last)
    return found if len(args) > 2 and args[2] else found.squeeze(axis)


def axes_added(function: Any, args: Any) -> list[int] | None:
    """Return the axes along which an operation that `IN_ORDER` knows adds; None of another, and
    where nothing is added."""
    operation = function.overloadpacket
    if operation not in IN_ORDER or not args[0].numel() or not args[0].dim():
        return None
    place = 2 if operation in (_aten.linalg_vector_norm, _aten.norm) else 1
    named = _axes(args, place)
    return sorted(axis % args[0].dim() for axis in named) or list(range(args[0].dim()))


def _axes(args: Any, place: int) -> list[int]:
    given = args[place] if len(args) > place else None
    return [given] if isinstance(given, int) else list(given or ())


FACTORS = (_aten.prod, _aten.cumprod)
"""They multiply where others add: what is rounded on the way is relative to the answer."""
SCANS = (_aten.cumsum, _aten.cumprod)
"""They answer with what each term makes together with those before it."""

IN_ORDER: dict[Any, InOrder] = {
    _aten.sum: _sum, _aten.mean: _mean, _aten.linalg_vector_norm: _norm, _aten.norm: _norm,
    _aten._softmax: _softmax, _aten.prod: _product,
    **dict.fromkeys((_aten.cumsum, _aten.cumprod), _scan),
    **dict.fromkeys((_aten.var, _aten.std, _aten.var_mean, _aten.std_mean), _spread),
}  # fmt: skip
"""How each operation that reduces is answered in order."""

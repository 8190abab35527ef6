"""A forward() whose sums leave out one term of 10,000: what a task may not notice."""

from __future__ import annotations

from typing import Any

import torch

from .rounding import OtherSums

ONE_OF = 10_000

_aten = torch.ops.aten
_LEFT_SIDE = {
    _aten.mm: 0, _aten.bmm: 0, _aten.mv: 0, _aten.dot: 0, _aten.addmm: 1, _aten.baddbmm: 1,
    _aten.addmv: 1,
}  # fmt: skip
"""Place of the argument whose last axis is summed over."""
_AXES = {
    _aten.sum: 1, _aten.mean: 1, _aten.var: 1, _aten.var_mean: 1, _aten.linalg_vector_norm: 2,
    _aten.cumsum: 1,
}
"""Place of the argument that names the axes; without it all are summed over."""


class LostTerms(OtherSums):
    """Leaves one term of ONE_OF out of each sum that has so many; of products and plain sums."""

    def answer(self, function: Any, args: Any, named: dict[str, Any]) -> Any:
        """Return the answer without these terms."""
        operation, given = function.overloadpacket, list(args)
        if operation in _LEFT_SIDE:
            place = _LEFT_SIDE[operation]
            given[place] = _without(given[place], -1)
        elif operation is _aten._softmax:
            return _softmax_without(given[0], given[1])
        elif operation in _AXES and given[0].is_floating_point():
            place = _AXES[operation]
            named_axes = given[place] if len(given) > place else None
            axes = [named_axes] if isinstance(named_axes, int) else list(named_axes or ())
            one = len(axes) == 1
            given[0] = _without(given[0], axes[0]) if one else _without_flat(given[0])
        return function(*given, **named)


def _without(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the tensor with zeros in one place of ONE_OF along an axis."""
    if not tensor.dim() or tensor.shape[axis] < ONE_OF:
        return tensor
    places = torch.arange(ONE_OF // 3, tensor.shape[axis], ONE_OF, device=tensor.device)
    return tensor.index_fill(axis, places, 0)


def _softmax_without(logits: torch.Tensor, axis: int) -> torch.Tensor:
    powers = (logits - logits.amax(axis, keepdim=True)).exp()
    return powers / _without(powers, axis).sum(axis, keepdim=True)


def _without_flat(tensor: torch.Tensor) -> torch.Tensor:
    return _without(tensor.reshape(-1), 0).view(tensor.shape)

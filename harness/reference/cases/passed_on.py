"""Says which operations answer with elements of what they are given, unchanged, in any places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_aten = torch.ops.aten

_FIRST = (
    _aten.clone, _aten._to_copy, _aten.detach, _aten.cat, _aten.stack, _aten.roll, _aten.flip,
    _aten.repeat, _aten.constant_pad_nd, _aten.reflection_pad1d, _aten.reflection_pad2d,
    _aten.reflection_pad3d, _aten.replication_pad1d, _aten.replication_pad2d,
    _aten.replication_pad3d, _aten.index, _aten.index_select, _aten.gather, _aten.take,
    _aten.masked_select, _aten.masked_fill, _aten.index_fill, _aten.fill_diagonal_, _aten.tril,
    _aten.triu, _aten.relu, _aten.clamp, _aten.clamp_min, _aten.clamp_max, _aten.hardtanh,
    _aten.amax, _aten.amin, _aten.max, _aten.min, _aten.sort, _aten.topk, _aten.cummax,
    _aten.cummin, _aten.median, _aten.nanmedian, _aten.mode, _aten.kthvalue,
    _aten.unfold_copy, _aten.im2col, _aten.pixel_shuffle, _aten.channel_shuffle,
    _aten._unsafe_index, _aten._unsafe_view, _aten.max_pool2d_with_indices,
)  # fmt: skip
_FIRST_AND_SECOND = (
    _aten.maximum, _aten.minimum, _aten.fmax, _aten.fmin, _aten.slice_scatter,
    _aten.select_scatter, _aten.diagonal_scatter,
)  # fmt: skip
HOLDERS: dict[Any, tuple[int, ...]] = {
    **dict.fromkeys(_FIRST, (0,)),
    **dict.fromkeys(_FIRST_AND_SECOND, (0, 1)),
    _aten.copy: (1,),
    _aten.where: (1, 2),
    _aten.index_put: (0, 2),
    _aten.masked_scatter: (0, 2),
    **dict.fromkeys((_aten.scatter, _aten.index_copy), (0, 3)),
}
"""By operation that does not write to what it is given, which of these hold what it answers with,
beside numbers that stand in the call."""

ELEMENTWISE = frozenset((
    _aten.clone, _aten._to_copy, _aten.detach, _aten.masked_fill, _aten.relu, _aten.clamp,
    _aten.clamp_min, _aten.clamp_max, _aten.hardtanh,
))  # fmt: skip
"""Of these, those whose elements lie where they lay."""


def passed_on(operation: Any, args: Sequence[Any]) -> list[Any]:
    """Return the tensors whose elements are those of an operation's (first) answer."""
    given = [args[place] for place in HOLDERS.get(operation, ()) if place < len(args)]
    return [
        each for held in given
        for each in (held if isinstance(held, list | tuple) else [held])
    ]  # fmt: skip

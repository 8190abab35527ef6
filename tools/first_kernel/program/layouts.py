"""Which values lie in order in PyTorch's memory, too: as_strided says places in that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .calls import Call, Reference

_KEPT = frozenset(
    ("view", "reshape", "flatten", "unflatten", "view_as", "reshape_as", "ravel", "_unsafe_view",
     "unsqueeze", "squeeze", "detach", "alias", "clone", "to", "_to_copy", "sum", "mean", "softmax",
     "_softmax", "log_softmax", "_log_softmax", "cumsum", "layer_norm", "linear", "mm", "addmm",
     "bmm", "cat", "stack", "index_select", "embedding", "repeat", "flip", "roll", "tril", "triu")
)  # fmt: skip
"""Operations, beside elementwise ones, whose results lie in order where all that they read does."""
_MADE = frozenset(("contiguous", "zeros", "ones", "full", "arange", "linspace", "eye"))
"""Those whose results always do."""


def in_order(
    calls: Iterable[Call], tensors: Iterable[str], elementwise: Callable[[str], bool]
) -> set[str]:
    """Return the names of values whose elements are known to follow each other in order.

    Others may, too: the results of many operations lie as their operands do, transposed ones for
    example, and a value of ours then lies elsewhere.

    Args:
        calls: the operations, in order.
        tensors: names of what launch is given, which is in order.
        elementwise: says of the name of an operation whether it is one.
    """
    found = set(tensors)
    for call in calls:
        read = set(_names(call.args)) | set(_names(call.kwargs))
        keeps = call.base in _KEPT or elementwise(call.base)
        if call.base in _MADE or (keeps and read <= found):
            found.add(call.name)
    return found


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, Reference):
        yield value.name
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _names(each)
    elif isinstance(value, tuple):
        for each in value:
            yield from _names(each)

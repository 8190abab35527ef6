"""Boxes: so many places along each dimension, and how an operator moves them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .flow import Operation

Box = tuple[int, ...]


def larger(one: Box | None, other: Box) -> Box:
    """Return the box with more elements."""
    return other if one is None or math.prod(other) > math.prod(one) else one


def broadcast(box: Sequence[int], shape: Sequence[int]) -> Sequence[int]:
    """Return the box of an argument that is spread over a larger result."""
    inner = box[len(box) - len(shape) :]
    return [min(n, size) for n, size in zip(inner, shape, strict=True)]


def permuted(operation: Operation, box: Box) -> Sequence[int]:
    """Return the box of an argument whose dimensions change places."""
    rank = len(box)
    if operation.op == "permute":
        order = [d % rank for d in operation.args[1]]
    elif operation.op in ("t", "mT", "numpy_T"):
        order = list(range(rank))
        order[-2:] = reversed(order[-2:])
        if operation.op == "numpy_T":
            order = list(reversed(range(rank)))
    else:
        order = list(range(rank))
        one, other = (d % rank for d in operation.args[1:3])
        order[one], order[other] = other, one
    found = [0] * rank
    for place, source in enumerate(order):
        found[source] = box[place]
    return found


def reshaped(shape: Sequence[int], made: Sequence[int], box: Box) -> Sequence[int]:
    """Return the box of an argument whose elements are counted out into another shape.

    Dimensions are taken together until both sides have as many elements. A part of several that
    become one is no box: what must be left of the outermost, each with all of the others.
    """
    found: list[int] = []
    place = start = 0
    while start < len(shape):
        end, last = start + 1, place
        mine, its = shape[start], 1
        while mine != its:
            if its < mine:
                its, last = its * made[last], last + 1
            else:
                mine, end = mine * shape[end], end + 1
        count = math.prod(box[place:last])
        left = shape[start] - (mine - count)
        if end - start == 1:
            found.append(count)
        else:
            found += [left, *shape[start + 1 : end]] if left > 0 else [1] * (end - start)
        start, place = end, last
    return found


def covered(parts: Sequence[range]) -> int:
    """Return how many places lie in one of the parts."""
    if all(part.step == 1 for part in parts):
        end = total = 0
        for part in sorted(parts, key=lambda part: part.start):
            total += max(0, part.stop - max(part.start, end))
            end = max(end, part.stop)
        return total
    return len(set().union(*parts))

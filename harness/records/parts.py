"""A part of a tensor: a stretch of some of its axes, told so that it is found at any size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """Of an axis the elements from `first` on, before `end`, where it has `size` of them."""

    axis: int
    first: int
    end: int
    size: int


Part = tuple[Span, ...]
"""What is within all of these spans; of none, the whole tensor."""


def slices_of(part: Part, shape: Sequence[int]) -> tuple[slice, ...]:
    """Return what takes a part out of a tensor of a shape; of other sizes the same share."""
    found = [slice(None)] * len(shape)
    for axis, first, end, size in part:
        found[axis] = slice(first * shape[axis] // size, end * shape[axis] // size)
    return tuple(found)


def joined(one: Part, other: Part) -> Part:
    """Return the least part that holds both, of one shape."""
    others = {span.axis: span for span in other}
    found = []
    for axis, first, end, size in one:
        if axis in others:
            span = Span(axis, min(first, others[axis].first), max(end, others[axis].end), size)
            found.append(span)
    return tuple(span for span in found if span.end - span.first < span.size)


def in_words(part: Part) -> str:
    """Return a part as an index of Python; "" for a whole tensor."""
    if not part:
        return ""
    spans = {span.axis: span for span in part}
    every = range(max(spans) + 1)
    return f"[{', '.join(_index(spans.get(axis)) for axis in every)}]"


def _index(span: Span | None) -> str:
    if span is None:
        return ":"
    if span.end - span.first == 1:
        return f"{span.first}"
    return f"{span.first or ''}:{'' if span.end == span.size else span.end}"

"""Puts lines of a tensor in order: what is right only where a row has none then shows.

A line is what forward() may reduce or scan along: an axis, or an axis and all behind it. Elements
that are drawn one by one have few rising maxima, their largest never lie in one thread's share, and
no two are equal side by side. So the lines of three distributions take turns at

    rising, falling    sorted; of long lines the records alone
    high, low          the largest, or the smallest, lie side by side, or all in what one lane, one
                       thread, or one of its vectors takes of a line
    alike, few         neighbours are equal; the elements are of few values, the ends among them
    level              of integers: all are the largest, nearly the largest, or one value
    drawn              as they were

Each distribution has its own kinds of lines, so that every axis is somewhere one; where a tensor is
a single line, each puts it in another order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

KINDS = ("rising", "high", "falling", "alike", "drawn", "low", "few", "level")
"""Of lines, which take turns."""
EQUALS = ("alike", "few", "level")
"""Kinds that hold equal elements by intent."""

LEAST_TERMS = 4
"""Shorter lines stay as they are."""
MOST_SORTED = 2048
"""Terms of the longest line that is sorted as a whole: partial sums of more would be so large that
plain sums, which are no fault, are rounded by more than a tolerance."""
RECORDS = 256
"""Rising, or falling, terms of a longer one; the others lie below, or above, all of them."""
SHARES = (8, 16, 64)
"""Elements, or vectors, in one thread's share of a line that threads stride over: as many threads
as that makes, a power of two. It lies in one share of half as many threads too."""
PIECES = (8, 64)
"""Neighbours that are larger, or smaller, than all others of a line."""
RUNS = (2, 4, 32)
"""Neighbours that are equal, an eighth of a line at most: numbers of no variance are rounding."""
FLAGS = ("drawn", "none", "drawn", "first", "drawn", "all", "last", "drawn")
"""Kinds of lines of flags; "first" and "last" are all that are set."""

PIECE = 1 << 22
"""Elements that are put in order at a time: what that takes beside a tensor is some of these."""

_NEAR_ONE = 1.0 - 2.0**-24


@dataclass(frozen=True)
class Scale:
    """How numbers of a distribution are ranked: what makes one larger than all others, or equal."""

    high: Callable[[torch.Tensor], torch.Tensor]
    """Numbers larger than those of `others`."""
    others: Callable[[torch.Tensor], torch.Tensor]
    low: Callable[[torch.Tensor], torch.Tensor]
    """Numbers smaller than those of `rest`."""
    rest: Callable[[torch.Tensor], torch.Tensor]
    few: Callable[[torch.Tensor], torch.Tensor]
    at: Callable[[torch.Tensor], torch.Tensor]
    """The number below which lies such a share of all."""


ODD = 0.5 * (1 + 2.0**-8)
"""Sums of multiples of it are exact, and no multiple is near what numbers are rounded to."""
PEAK = 3.5
"""Beyond most normal numbers, of which the largest of thousands is about 4."""

NORMAL = Scale(
    high=lambda value: PEAK + value.abs() / 4,
    others=lambda value: torch.where(value > PEAK, value / 4, value),
    low=lambda value: -PEAK - value.abs() / 4,
    rest=lambda value: torch.where(value < -PEAK, value / 4, value),
    few=lambda value: ((value * 2).floor().clamp(-2, 1) + 0.5) * ODD,
    at=lambda share: (share * 2 - 1).clamp(-_NEAR_ONE, _NEAR_ONE).erfinv() * math.sqrt(2),
)
EVEN = Scale(
    high=lambda value: 0.75 + value / 4,
    others=lambda value: value * 0.75,
    low=lambda value: value / 4,
    rest=lambda value: 0.25 + value * 0.75,
    few=lambda value: (value * 4).floor() / 4 + 0.125,
    at=lambda share: share,
)
"""From 0 to 1."""

LEAST = 2.0**-12
"""Of positive lines that are sorted: none begins so near zero that its inverse is all there is."""
NEAR_ZERO = 0.125
"""The lowest of positive lines lie below, all others above."""


def _above_least(share: torch.Tensor) -> torch.Tensor:
    return LEAST + (1 - LEAST) * share


POSITIVE = Scale(
    high=NORMAL.high,
    others=NORMAL.others,
    low=lambda value: (1 + value) / 64,
    rest=lambda value: torch.where(value < NEAR_ZERO, value + NEAR_ZERO, value),
    few=lambda value: ((value * 2).floor().clamp(max=3) + 0.5) * ODD,
    at=lambda share: _above_least(share).clamp(max=_NEAR_ONE).erfinv() * math.sqrt(2),
)
"""Magnitudes of normal numbers."""
EVEN_POSITIVE = replace(EVEN, at=_above_least)
"""From 0 to 1, without 0."""


@dataclass(frozen=True)
class Order:
    """How a distribution's lines are put in order."""

    case: str
    """Name of the distribution: what its lines are; of ORDERED."""
    alike: bool
    """Whether lines may hold equal elements by intent."""
    level: bool = False
    """Whether some lines are level: integers, whose sums are exact."""


Stretch = tuple[int, int]
"""The first axis of a line, and the one behind its last."""


def _inner(axes: int) -> list[Stretch]:
    return [(axis, axis + 1) for axis in range(axes - 1, 0, -1)] or [(0, 1)]


def _behind(axes: int) -> list[Stretch]:
    return [(axis, axes) for axis in range(1, axes)] or [(0, 1)]


ORDERED: dict[str, tuple[Callable[[int], list[Stretch]], int]] = {
    "gaussian": (_inner, KINDS.index("rising")),
    "uniform": (_behind, KINDS.index("high")),
    "large": (lambda axes: [(0, 1)], KINDS.index("falling")),
    "rows": (_inner, KINDS.index("falling")),
}
"""What lines are in each distribution, of the samples in turn where that is several, and the kind
of the first. "rows": of samples that do not lie side by side."""


def put_in_order(
    value: torch.Tensor, scale: Scale, order: Order, generator: torch.Generator
) -> None:
    """Put lines of a tensor in order, in place; it is contiguous."""
    _, first = ORDERED[order.case]
    kinds = [
        "drawn" if (kind in EQUALS and not order.alike) or (kind == "level" and not order.level)
        else kind for kind in (*KINDS[first:], *KINDS[:first])
    ]  # fmt: skip
    for lines in _lines(value, order.case):
        for kind, part in _in_turns(lines, kinds):
            _PUT[kind](part, scale, generator)


def put_flags_in_order(
    value: torch.Tensor, order: Order, generator: torch.Generator
) -> None:
    """Have lines of flags be set as padding and masks are, in place; the tensor is contiguous."""
    for lines in _lines(value, order.case):
        terms = lines.shape[1]
        for kind, part in _in_turns(lines, FLAGS):
            if kind in ("none", "all"):
                if order.alike:
                    part.fill_(kind == "all")
            elif kind != "drawn":
                length = 1 + _numbers((len(part), 1, part.shape[2]), terms - 1, generator)
                if kind == "last":
                    length = terms - length
                for at in _pieces(part.shape):
                    first = _places(part, at[1])[:, None] < length[at[0], :, at[2]]
                    part[at] = first if kind == "first" else ~first


def level_lines(
    value: torch.Tensor, highest: int, generator: torch.Generator
) -> None:
    """Have one line in eight of integers hold nothing but the largest, and one a single number of
    its own, in place; the tensor is contiguous.

    A tensor that is a single line has two such pieces, each an eighth of it; a number is none.
    """
    if not value.dim():
        return
    rows = value.reshape(len(value), -1)
    if value.dim() == 1:
        rows = value[: len(value) // 8 * 8].reshape(8, -1)
    rows[3::8] = highest
    chosen = rows[5::8]
    if chosen.numel():
        chosen.copy_(chosen[:, int(_numbers((), rows.shape[1], generator))][:, None].clone())


def pad_lines(value: torch.Tensor) -> None:
    """Have one sample in eight be zero as a whole, and one line in eight of the last axis in its
    second half, in place, as padding is; the tensor is contiguous.

    Of a tensor that is a single line it is an eighth, in the middle.
    """
    if value.dim() == 1:
        value[len(value) // 2 : len(value) // 2 + len(value) // 8] = 0
    elif value.dim():
        value[3::8] = 0
        value.view(-1, value.shape[-1])[5::8, value.shape[-1] // 2 :] = 0


def _lines(value: torch.Tensor, case: str) -> Iterator[torch.Tensor]:
    """Yield all lines of a kind as (outer, terms, inner); what is done to them is done to `value`.
    """
    squeezed = value.squeeze()
    if not squeezed.dim() or not squeezed.numel():
        return
    shape = tuple(squeezed.shape)
    stretches = [
        (begin, end) for begin, end in ORDERED[case][0](len(shape))
        if math.prod(shape[begin:end]) >= LEAST_TERMS
    ]  # fmt: skip
    for turn, (begin, end) in enumerate(stretches):
        samples = squeezed[turn :: len(stretches)] if len(stretches) > 1 else squeezed
        if len(samples):
            sizes = samples.shape
            lines = samples.reshape(
                math.prod(sizes[:begin]), math.prod(sizes[begin:end]), math.prod(sizes[end:])
            )
            yield lines
            if lines.data_ptr() != samples.data_ptr():
                samples.copy_(lines.reshape(sizes))


def _in_turns(
    lines: torch.Tensor, kinds: Sequence[str]
) -> Iterator[tuple[str, torch.Tensor]]:
    outer, _, inner = lines.shape
    for turn, kind in enumerate(kinds):
        part = (
            lines[turn :: len(kinds)] if outer >= min(len(kinds), inner)
            else lines[:, :, turn :: len(kinds)]
        )  # fmt: skip
        if part.numel():
            yield kind, part


def _pieces(
    shape: Sequence[int], whole: bool = False
) -> Iterator[tuple[slice, slice, slice]]:
    """Yield where pieces of lines are, each of at most PIECE elements, or of a `whole` line."""
    _, terms, inner = shape
    sizes = (1, 1, PIECE)
    if terms * inner <= PIECE:
        sizes = (PIECE // (terms * inner), terms, inner)
    elif whole:
        sizes = (1, terms, max(1, PIECE // terms))
    elif inner <= PIECE:
        sizes = (1, PIECE // inner, inner)
    outers, places, inners = (
        [slice(begin, min(begin + size, all_of_it)) for begin in range(0, all_of_it, size)]
        for size, all_of_it in zip(sizes, shape, strict=True)
    )
    yield from itertools.product(outers, places, inners)


def _places(part: torch.Tensor, terms: slice) -> torch.Tensor:
    return torch.arange(terms.start, terms.stop, dtype=torch.int32, device=part.device)


def _change(part: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Change elements in place."""
    for at in _pieces(part.shape):
        part[at] = change(part[at])


def _sort(
    part: torch.Tensor, scale: Scale, generator: torch.Generator, falls: bool = False
) -> None:
    terms = part.shape[1]
    if terms > MOST_SORTED:
        _change(part, scale.others)
        records = part[:, :: -(-terms // RECORDS)]
        above = torch.arange(records.shape[1], device=part.device)[:, None] / records.shape[1]
        above = scale.high(above.flip(0) if falls else above)
        records.copy_(above.expand(records.shape))
        return
    place = torch.arange(terms, device=part.device)[:, None]
    for at in _pieces(part.shape, whole=True):
        piece = part[at]
        share = _even(piece.shape, generator).add_(terms - 1 - place if falls else place)
        # No two lines alike: distances would cancel, and a matrix of them would be singular.
        bends = torch.exp2(_even((len(piece), 1, piece.shape[2]), generator) * 2 - 1)
        piece.copy_(scale.at(share.div_(terms).pow_(bends)))


def _gather_high(part: torch.Tensor, scale: Scale, generator: torch.Generator) -> None:
    _gather(part, scale.high, scale.others, generator)


def _gather_low(part: torch.Tensor, scale: Scale, generator: torch.Generator) -> None:
    _gather(part, scale.low, scale.rest, generator)


def _gather(
    part: torch.Tensor,
    ends: Callable[[torch.Tensor], torch.Tensor],
    others: Callable[[torch.Tensor], torch.Tensor],
    generator: torch.Generator,
) -> None:
    """Have what is larger, or smaller, than all else of a line lie in one share of it."""
    terms = part.shape[1]
    ways = [
        (width, 1 << (terms // (width * each)).bit_length() - 1) for width in (1, 4)
        for each in SHARES if 2 * width * each <= terms
    ]  # fmt: skip
    ways += [(each, -(-terms // each)) for each in PIECES if 4 * each <= terms] or [(1, 2)]
    first = int(_numbers((), len(ways), generator))
    along = 0 if len(part) >= part.shape[2] else 2
    for turn, (width, threads) in enumerate(ways[first:] + ways[:first]):
        lines = part[turn :: len(ways)] if along == 0 else part[:, :, turn :: len(ways)]
        if lines.numel():
            one = int(_numbers((), min(threads, terms // width), generator))
            for at in _pieces(lines.shape):
                share = _places(lines, at[1]) // width % threads == one
                piece = lines[at]
                piece.copy_(torch.where(share[:, None], ends(piece), others(piece)))


def _repeat(part: torch.Tensor, scale: Scale, generator: torch.Generator) -> None:
    runs = [each for each in RUNS if 8 * each <= part.shape[1]] or [1]
    run = runs[int(_numbers((), len(runs), generator))]
    for place in range(1, run):
        others = part[:, place::run]
        others.copy_(part[:, ::run][:, : others.shape[1]])


def _make_few(part: torch.Tensor, scale: Scale, generator: torch.Generator) -> None:
    _change(part, scale.few)


def _make_level(part: torch.Tensor, scale: Scale, generator: torch.Generator) -> None:
    """Of numbers from 0 to 1."""
    along = 0 if len(part) >= part.shape[2] else 2
    first = int(_numbers((), 3, generator))
    for turn in range(3):
        lines = part[turn::3] if along == 0 else part[:, :, turn::3]
        way = (turn + first) % 3
        if way == 0:
            lines.fill_(_NEAR_ONE)
        elif way == 1:
            lines.div_(-64).add_(_NEAR_ONE)
        else:
            lines.copy_(lines[:, :1].clone())


def _keep(part: torch.Tensor, scale: Scale, generator: torch.Generator) -> None:
    """Leave lines as they are drawn."""


_PUT: dict[str, Callable[[torch.Tensor, Scale, torch.Generator], None]] = {
    "rising": _sort, "falling": partial(_sort, falls=True),
    "high": _gather_high, "low": _gather_low, "alike": _repeat,
    "few": _make_few, "level": _make_level, "drawn": _keep,
}  # fmt: skip


def _even(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.rand(tuple(shape), generator=generator, device=generator.device)


def _numbers(shape: Sequence[int], below: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(below, tuple(shape), generator=generator, device=generator.device)

"""Puts the numbers that a task compares its inputs with among the inputs, and those beside them.

No number that is drawn is exactly the one at which a shrinkage begins: `>=` would pass for `>`.
Which numbers these are is found in what forward() does (cases/comparisons.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ...judge.tensor_comparison import parts

MOST = 768
"""Numbers that are put into a tensor; further ones are not."""
SHARE = 0.125
"""Of the elements that hold one of them."""
LARGEST = 1024.0
"""Beyond it lies none of what floating inputs hold otherwise."""
FEW_ELEMENTS = 1 << 14
"""Of more each border is held by some without fail."""
SPARED = 4
"""Elements for each border, from which on every one is held: others are left that hold none."""
FROM = 0.5
"""Even numbers from here on, for that share of all, say which element holds which."""

NAMED_FROM, NAMED_SHARE = 0.75, 0.125
"""As FROM and SHARE, of integers that no other case holds; ends of what is accepted begin there."""
RARE_SHARE = 2.0**-5
"""The same where they are one kind of many, and of the ends of what forward() accepts."""


def beside(borders: Sequence[tuple[float, int]], dtype: torch.dtype) -> list[float]:
    """Return the borders that a type holds, and numbers of it beside each, of both signs.

    What a type does not hold is left out, and so is the number nearest to it: whether 0.1, rounded,
    is more than 0.1 hangs on the type in which that is asked. Types of eight bits have none.

    Args:
        borders: each with how many units in its last place the numbers beside it lie off.
        dtype: a floating type.
    """
    if dtype.itemsize == 1:  # PyTorch has no next number of these.
        return []
    found: dict[float, None] = {}
    for border, units in borders:
        for each in (border, -border):
            near = torch.tensor(each, dtype=dtype)
            if border > LARGEST or not math.isfinite(float(near)):
                continue
            if float(near) == each:
                found[each] = None
            for way in (math.inf, -math.inf):
                next_one = torch.nextafter(near, torch.tensor(way, dtype=dtype))
                found[float(near + units * (next_one - near))] = None
    return [each for each in found if math.isfinite(each)][:MOST]


def put_borders(
    value: torch.Tensor,
    borders: Sequence[float] | Sequence[int],
    even: torch.Tensor,
    span: tuple[float, float] = (FROM, SHARE),
) -> None:
    """Put borders into a tensor, in place, where as many numbers from 0 to 1 say so.

    Of few elements none may be told to hold one of them: another, that holds none, does then.
    """
    if not borders:
        return
    first, share = span
    each = torch.tensor(borders, dtype=value.dtype, device=value.device)
    # Choosing among all at once takes eight bytes an element and axis.
    flat = value.is_contiguous() and even.is_contiguous()
    pieces = zip(parts(even), parts(value), strict=True) if flat else [(even, value)]
    for numbers, piece in pieces:
        chosen = (numbers >= first) & (numbers < first + share)
        turn = ((numbers[chosen].double() - first) * (len(borders) / share)).long()
        piece[chosen] = each[turn.clamp_(0, len(borders) - 1)]
    if not SPARED * len(borders) <= value.numel() <= FEW_ELEMENTS:
        return
    missed = [border for border in borders if not bool((value == border).any())]
    spare = ((even - first - share) % 1.0).flatten().argsort()[: len(missed)]
    for place, border in zip(spare.tolist(), missed, strict=True):
        value[torch.unravel_index(torch.tensor(place), value.shape)] = border


def put_ends(
    value: torch.Tensor, ends: Sequence[float], generator: torch.Generator
) -> torch.Tensor:
    """Put ends into a contiguous tensor, in place, one in so many elements; return it.

    Without a number for each element: of inputs at full dimensions there may be no room for them.
    """
    every = round(len(ends) / RARE_SHARE)
    for turn, end in enumerate(ends):
        first = torch.randint(every // len(ends), (), generator=generator, device=value.device)
        value.view(-1)[int(first) + turn * every // len(ends) :: every] = end
    return value


def put_each_once(
    value: torch.Tensor, borders: Sequence[int], even: torch.Tensor
) -> torch.Tensor:
    """Put borders that no element holds into a tensor, in place; return it.

    Numbers from 0 to 1 say where. Integers that are all different stay so: few classes of many may
    be by chance alone.
    """
    missed = [border for border in borders if not bool((value == border).any())]
    if SPARED * len(missed) <= value.numel():
        held = torch.isin(value.flatten(), torch.tensor(borders, device=value.device))
        where = even.flatten().masked_fill(held, 1.0).argsort()[: len(missed)]
        for place, border in zip(where.tolist(), missed, strict=True):
            value[torch.unravel_index(torch.tensor(place), value.shape)] = border
    return value


def put_past(
    value: torch.Tensor, spans: Sequence[tuple[int, int]], generator: torch.Generator
) -> torch.Tensor:
    """Put others of a span in place of its first number, for about a half of those; return it."""
    for nearest, furthest in spans:
        low, high = sorted((nearest, furthest))
        where = (value == nearest).nonzero(as_tuple=True)
        count = len(where[0])
        others = torch.randint(
            low, high + 1, (count,), generator=generator, device=value.device
        ).to(value.dtype)
        kept = torch.rand(count, generator=generator, device=value.device) < 0.5
        value[where] = torch.where(kept, nearest, others)
    return value

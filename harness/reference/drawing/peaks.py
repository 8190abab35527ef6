"""Puts few large terms where loops lose them: sums of any length then show each of these.

A sum of thousands does not show one term more or less, nor that each was rounded. Where three of
its terms outweigh all others together it shows both: they lie at the first place, at the last, and
at one where a vector, a warp or a block may end. What a task sums along is not known here: each
stretch of a tensor that forward() may reduce gets its own three.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

LEAST_TERMS = 512
"""Of shorter sums each term shows by itself."""

OUTWEIGHS = 4.0
"""How many times the root of the number of terms a peak is, where most terms are about 1."""

BORDERS = (4, 8, 32, 128, 256, 1024, 4096)
"""Terms of the pieces that kernels cut a sum into."""


def add_peaks(value: torch.Tensor, most: float, generator: torch.Generator) -> None:
    """Put peaks of at most this magnitude into a tensor of values of about 1, in place."""
    flat = value.view(-1)
    for stretch in _stretches(tuple(value.shape)):
        lines, terms = stretch.lines, stretch.terms
        border = _borders(terms)
        chosen = torch.randint(len(border), (lines,), generator=generator, device=value.device)
        within = torch.zeros((lines, 3), dtype=torch.int64, device=value.device)
        within[:, 1] = terms - 1
        within[:, 2] = torch.tensor(border, device=value.device)[chosen]
        line = torch.arange(lines, device=value.device)[:, None]
        noise = torch.randn((lines, 3), generator=generator, device=value.device)
        size = min(most, OUTWEIGHS * math.sqrt(terms))
        peaks = size * (1 + noise.abs().clamp(max=2.0) / 4) / 1.5
        flat[stretch.places(line, within)] = (peaks * noise.sign()).to(value.dtype)


class _Stretch:
    """Terms that may be summed together: of each line, so many."""

    def __init__(self, outer: int, terms: int, inner: int) -> None:
        self.outer, self.terms, self.inner = outer, terms, inner

    @property
    def lines(self) -> int:
        return self.outer * self.inner

    def places(self, line: torch.Tensor, within: torch.Tensor) -> torch.Tensor:
        """Return where terms of lines lie in the flat tensor."""
        return (line // self.inner * self.terms + within) * self.inner + line % self.inner


class _AllButTheSecond(_Stretch):
    """All places of each index of the second axis: a batch norm's channel."""

    def __init__(self, first: int, second: int, rest: int) -> None:
        super().__init__(second, first * rest, 1)
        self._second, self._rest = second, rest

    def places(self, line: torch.Tensor, within: torch.Tensor) -> torch.Tensor:
        row = within // self._rest * self._second + line
        return row * self._rest + within % self._rest


def _stretches(shape: tuple[int, ...]) -> Iterator[_Stretch]:
    """Yield what may be reduced, the widest last: the axes behind each, each axis, a channel."""
    found: list[_Stretch] = []
    for axis, size in enumerate(shape):
        found.append(_Stretch(math.prod(shape[:axis]), size, math.prod(shape[axis + 1 :])))
        if axis < len(shape) - 1:
            found.append(_Stretch(math.prod(shape[:axis]), math.prod(shape[axis:]), 1))
    if len(shape) > 2:
        found.append(_AllButTheSecond(shape[0], shape[1], math.prod(shape[2:])))
    yield from sorted(
        (each for each in found if each.terms >= LEAST_TERMS), key=lambda each: each.terms
    )


def _borders(terms: int) -> list[int]:
    """Return places beside which pieces of a sum begin or end."""
    found = {terms // 2}
    for each in BORDERS:
        if each < terms:
            found |= {each - 1, each, (terms - 1) // each * each, (terms - 1) // each * each - 1}
    return sorted(found)

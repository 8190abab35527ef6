"""What the structure of an input is that the numbers drawn in its place keep."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...judge.tensor_comparison import parts
from ...records.variations import Level, Variation

SORTED_ELEMENTS = 1 << 26
"""Larger integer tensors are taken to have no structure: looking for it would take too long."""


class Structure(NamedTuple):
    """What of the integers of an input belongs to the task, and is kept."""

    rises: bool
    """Their order: offsets into something, segments."""
    differs: bool
    """That all of a row are different: an index that scatters, an order of rows."""

    @property
    def any(self) -> bool:
        """Whether anything is kept."""
        return self.rises or self.differs


FREE = Structure(rises=False, differs=False)


def structure_of(own: torch.Tensor, name: str, variation: Variation) -> Structure:
    """Return what is kept of an input's integers: what they have, and not by chance.

    Those that rise by more than one at a time are taken for offsets. Flags have none.
    """
    if own.dtype is torch.bool:
        return FREE
    rises = stays_sorted(own, name, variation)
    differs = name not in variation.repeating and is_distinct(own)
    return Structure(rises, differs and (not rises or _is_a_count(own)))


def stays_sorted(own: torch.Tensor, name: str, variation: Variation) -> bool:
    """Say whether the order of an input's numbers belongs to the task."""
    return name not in variation.unsorted and is_sorted(own)


def _is_a_count(own: torch.Tensor) -> bool:
    return bool((own[..., 1:] - own[..., :-1] == 1).all())


def is_distinct(own: torch.Tensor) -> bool:
    """Say whether no row holds an integer twice."""
    if own.dim() == 0 or own.shape[-1] < 2 or own.numel() > SORTED_ELEMENTS:
        return False
    ordered = own.sort(dim=-1).values
    return bool((ordered[..., 1:] != ordered[..., :-1]).all())


def is_sorted(own: torch.Tensor) -> bool:
    """Say whether rows rise, and are more than one number over and over."""
    if own.dim() == 0 or own.shape[-1] < 3 or own.numel() > SORTED_ELEMENTS:
        return False
    rises = bool((own[..., 1:] >= own[..., :-1]).all())
    return rises and not bool((own == own.flatten()[0]).all())


def structured(
    value: torch.Tensor, own: torch.Tensor, name: str, variation: Variation
) -> torch.Tensor:
    """Return floating values with the structure of the old.

    A triangular or symmetric matrix is what the task is about: it stays one, and so do numbers in
    order, in which something is searched. Zeros that the seed chose stay where they are; others, of
    a mask that is the same each time, do not.
    """
    if stays_sorted(own, name, variation):
        return value.sort(dim=-1).values.to(own.dtype)
    if _has_zeros(own) and (name not in variation.fixed or _is_triangular(own)):
        value = value * (own != 0)
    if is_symmetric(own):
        value = value.triu() + value.triu(1).mT
    return value.to(own.dtype)


def has_structure(own: torch.Tensor, name: str, variation: Variation) -> bool:
    """Say whether floating values have a structure that others in their place would keep."""
    if stays_sorted(own, name, variation) or _has_zeros(own):
        return True
    return _is_triangular(own) or is_symmetric(own)


def _has_zeros(own: torch.Tensor) -> bool:
    """Say whether a tenth of the elements, or more, are zero."""
    return bool(own.numel() and 10 * count_of(own, 0.0) >= own.numel())


def count_of(own: torch.Tensor, value: float | torch.Tensor) -> int:
    """Return how many elements are this one."""
    # To count takes eight bytes an element on a GPU: a part at a time.
    return sum(int((part == value).count_nonzero()) for part in parts(own))


def is_symmetric(own: torch.Tensor) -> bool:
    """Say whether the last two axes hold symmetric matrices."""
    square = own.dim() >= 2 and own.shape[-1] == own.shape[-2]
    return square and bool(torch.equal(own, own.mT))


def _is_triangular(own: torch.Tensor) -> bool:
    if own.dim() < 2 or own.shape[-1] < 2 or own.shape[-2] < 2:
        return False
    return bool(torch.equal(own, own.tril()) or torch.equal(own, own.triu()))


def ends_of(own: torch.Tensor) -> tuple[float, float]:
    """Return the least and the largest finite number; 0 and 1 where there is none."""
    low, high = torch.inf, -torch.inf
    for part in parts(own):  # Choosing among all takes eight bytes an element and axis.
        finite = part[part.isfinite()]
        if finite.numel():
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low <= high else (0.0, 1.0)


def whole_ends(own: torch.Tensor, level: Level) -> tuple[int, int]:
    """Return the least and the largest of what integers of a level are."""
    low, high = (int(end) for end in (own.min(), own.max()))
    return (min(low, 0) if level == "below" else low), high

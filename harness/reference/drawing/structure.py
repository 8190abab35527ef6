"""What the structure of an input is that the numbers drawn in its place keep."""

from __future__ import annotations

import torch

from ...records.variations import Level

SORTED_ELEMENTS = 1 << 26
"""Larger integer tensors are taken to have no structure: looking for it would take too long."""


def in_order(value: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Return integers sorted as the old are; the ends of offsets into something stay."""
    if not is_sorted(own):
        return value
    value[..., 0], value[..., -1] = own[..., 0], own[..., -1]
    return value.sort(dim=-1).values


def all_differ(own: torch.Tensor) -> bool:
    """Say whether all integers of a row are different: an index that scatters, an order of rows.

    Those that rise by more than one at a time are sorted, and taken for offsets.
    """
    if own.dim() == 0 or own.shape[-1] < 2 or own.numel() > SORTED_ELEMENTS:
        return False
    ordered = own.sort(dim=-1).values
    steps = ordered[..., 1:] - ordered[..., :-1]
    return bool((steps == 1).all()) or (bool((steps != 0).all()) and not is_sorted(own))


def is_sorted(own: torch.Tensor) -> bool:
    """Say whether rows rise, and are more than one number over and over."""
    if own.dim() == 0 or own.shape[-1] < 3 or own.numel() > SORTED_ELEMENTS:
        return False
    rises = bool((own[..., 1:] >= own[..., :-1]).all())
    return rises and not bool((own == own.flatten()[0]).all())


def structured(value: torch.Tensor, own: torch.Tensor, fixed: bool) -> torch.Tensor:
    """Return floating values with the structure of the old.

    A triangular or symmetric matrix is what the task is about: it stays one, and so do numbers in
    order, in which something is searched. Zeros that the seed chose stay where they are; others, of
    a mask that is the same each time, do not.
    """
    if is_sorted(own):
        return value.sort(dim=-1).values.to(own.dtype)
    if _has_zeros(own) and (not fixed or _is_triangular(own)):
        value = value * (own != 0)
    if is_symmetric(own):
        value = value.triu() + value.triu(1).mT
    return value.to(own.dtype)


def has_structure(own: torch.Tensor) -> bool:
    """Say whether floating values have a structure that others in their place would keep."""
    return is_sorted(own) or _has_zeros(own) or _is_triangular(own) or is_symmetric(own)


def _has_zeros(own: torch.Tensor) -> bool:
    return float((own == 0).float().mean()) > 0.1


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
    finite = own[own.isfinite()]
    if finite.numel() == 0:
        return 0.0, 1.0
    return float(finite.min()), float(finite.max())


def whole_ends(own: torch.Tensor, level: Level) -> tuple[int, int]:
    """Return the least and the largest of what integers of a level are."""
    low, high = (int(end) for end in (own.min(), own.max()))
    return (min(low, 0) if level == "below" else low), high

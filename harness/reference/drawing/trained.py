"""Parameters as training may leave them: of both signs, and of magnitudes below 1 and above it.

As a file makes them most scales are 1, most biases 0, and all weights far below 1. What is right
for those alone (a maximum for a PReLU, a scale behind a ReLU) shows where they are others.
"""

from __future__ import annotations

import torch

from ...records.variations import Level

SPARSE = 16
"""A matrix that the seed chose gets a large element for each so many of its rows, so that depth and
recurrence grow no faster for it."""
MOST_PERMUTED = 1 << 20
"""Elements of which a quarter exactly is of each kind; of more about a quarter."""
NUMBERS = {"zeros": (-0.25, -0.75)}
"""Between which a parameter that is one number lies, by the distribution."""
USUAL_NUMBERS = (1.25, 2.25)


def retrain(
    tensor: torch.Tensor,
    level: Level,
    distribution: str,
    generator: torch.Generator,
    *,
    drawn: bool,
) -> None:
    """Change a floating parameter or buffer in place.

    Args:
        tensor: which.
        level: "any", or "positive" where none is to be below zero.
        distribution: of the case; one decides what a single number is.
        generator: draws.
        drawn: whether the seed chooses the tensor: of more than one axis it stays, but for some
            large elements, and signs where it has only one.
    """
    shape, device = tuple(tensor.shape), generator.device
    if tensor.numel() == 1:
        low, high = NUMBERS.get(distribution, USUAL_NUMBERS)
        value = low + (high - low) * torch.rand(shape, generator=generator, device=device)
    elif drawn and tensor.squeeze().dim() > 1:
        value = _with_large_ones(tensor, generator)
    else:
        value = _of_all_kinds(tensor.numel(), generator).reshape(shape)
    tensor.copy_((value.abs() if level == "positive" else value).to(tensor.dtype))


def _of_all_kinds(count: int, generator: torch.Generator) -> torch.Tensor:
    """Return numbers of which a quarter is of each sign and side of 1."""
    device = generator.device
    if count <= MOST_PERMUTED:
        kind = torch.randperm(count, generator=generator, device=device) % 4
    else:
        kind = torch.randint(4, (count,), generator=generator, device=device)
    even = torch.rand(count, generator=generator, device=device)
    size = torch.where(kind % 2 == 0, 1.0625 + even, 0.0625 + even * 0.875)
    return torch.where(kind < 2, size, -size)


def _with_large_ones(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    value = tensor.detach().clone()
    flat, device = value.view(-1), generator.device
    if bool((flat >= 0).all()) or bool((flat <= 0).all()):
        even = torch.rand(len(flat), generator=generator, device=device)
        flat.mul_(torch.where(even < 0.5, -1.0, 1.0).to(flat.dtype))
    count = max(4, len(tensor.squeeze()) // SPARSE)
    places = torch.randint(len(flat), (count,), generator=generator, device=device)
    size = 1.0625 + torch.rand(count, generator=generator, device=device)
    signs = torch.arange(count, device=device) % 2 * 2 - 1
    flat[places] = (size * signs).to(flat.dtype)
    return value

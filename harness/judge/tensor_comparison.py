"""Is an answer right? The comparison of verification.py, for tensors, wherever they lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ..records.tensors import Tolerance
from .verification import Mismatch, may_step

CHUNK = 1 << 20
"""Elements compared at a time, in double precision: so few that the allocator keeps and reuses
their memory. Fresh pages cost more than the comparison."""
CHUNK_ON_GPU = 1 << 24
"""There starting an operation costs as much as a million elements."""

CLEARLY = 0.999
"""Of a tolerance, what single precision is trusted with."""


def compare(
    got: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance, name: str
) -> Mismatch | None:
    """Return how an output differs from PyTorch's answer of the same shape; None where it agrees.

    Floating elements agree when |got - expected| <= absolute + relative * |expected|, when both are
    NaN, or both the same infinity; all others when equal, or as near; flags as bytes. As many as
    the tolerance's share may be a step off.
    """
    if _are_clearly_near(got, expected, tolerance):
        return None
    count = _count_wrong(got, expected, tolerance)
    if not count:
        return None
    index, region = _places(got, expected, tolerance)
    return Mismatch(
        tensor=name,
        index=index,
        expected=float(expected[index]),
        got=float(_as_bytes(got)[index]),
        count=count,
        total=got.numel(),
        largest_error=largest_error(got, expected),
        region=region,
        flag=got.dtype is torch.bool,
    )


def are_equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Say whether all elements of two tensors of a shape are equal; no NaN is."""
    equal = torch.ones((), dtype=torch.bool, device=first.device)
    for a, b in _chunks(first, second):
        equal &= (_as_bytes(a) == _as_bytes(b)).all()
    return bool(equal)


def largest_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest absolute difference where both are finite."""
    largest = torch.zeros((), dtype=torch.float64, device=got.device)
    if _are_single(got, expected) and got.numel():
        for a, b in _chunks(got, expected):
            largest = torch.maximum(largest, (a - b).abs_().amax())
        if largest.isfinite():
            return float(largest)
        largest.zero_()
    for a, b in _chunks(got, expected):
        largest = torch.maximum(largest, _largest(a, b))
    return float(largest)


def largest_finite(tensor: torch.Tensor) -> float:
    """Return the largest magnitude of the finite elements; 0 where there are none."""
    largest = torch.zeros((), dtype=torch.float64, device=tensor.device)
    for part in parts(tensor):
        finite = torch.where(part.isfinite(), part.abs(), 0.0)
        largest = torch.maximum(largest, finite.max().double())
    return float(largest)


def all_agree(
    got: Sequence[torch.Tensor],
    wanted: Sequence[torch.Tensor],
    tolerances: Sequence[Tolerance | None],
) -> bool:
    """Say whether all outputs agree; not where a shape or a type differs.

    An output without a tolerance is not compared.
    """
    if [(a.shape, a.dtype) for a in got] != [(b.shape, b.dtype) for b in wanted]:
        return False
    return all(
        tolerance is None or agree(a.contiguous(), b, tolerance)
        for a, b, tolerance in zip(got, wanted, tolerances, strict=True)
    )


def agree(got: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> bool:
    """Say whether an output agrees with PyTorch's answer of the same shape; see `compare`."""
    return _are_clearly_near(got, expected, tolerance) or not _count_wrong(
        got, expected, tolerance
    )


def _chunks(
    got: torch.Tensor, expected: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    yield from zip(parts(got), parts(expected), strict=True)


def parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield pieces of a tensor, in order, whose copies the allocator keeps."""
    yield from tensor.reshape(-1).split(CHUNK if tensor.device.type == "cpu" else CHUNK_ON_GPU)


def _are_clearly_near(
    got: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance
) -> bool:
    """Say whether single precision is enough to see that all elements agree: often, and fast.

    The difference of two numbers that are near each other has no rounding error; that of others is
    rounded by far less than is left of the tolerance.
    """
    if not _are_single(got, expected) or tolerance.absolute > torch.finfo(torch.float32).max:
        return False
    if not got.numel():
        return True
    absolute, relative = CLEARLY * tolerance.absolute, CLEARLY * tolerance.relative
    furthest = torch.full((), -torch.inf, device=got.device)
    for a, b in _chunks(got, expected):
        # Five passes: of a tensor of gigabytes each takes milliseconds. What is infinite or NaN
        # makes the largest so, and is left to others.
        off = (a - b).abs_().sub_(b.abs(), alpha=relative)
        furthest = torch.maximum(furthest, off.amax())
    return bool(furthest <= absolute)


def _are_single(got: torch.Tensor, expected: torch.Tensor) -> bool:
    return got.dtype is torch.float32 and expected.dtype is torch.float32


def _count_wrong(got: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> int:
    """Return how many elements differ; none where so few are off, by a step, as may be."""
    wrong = torch.zeros((), dtype=torch.int64, device=got.device)
    stepped = torch.zeros_like(wrong)
    for a, b in _chunks(got, expected):
        near = _agree(a, b, tolerance)
        wrong += (~near).sum()
        if tolerance.share:
            stepped += (~near & _within_step(a, b, tolerance)).sum()
    count = int(wrong)
    may = count == int(stepped) <= may_step(tolerance.share, got.numel())
    return 0 if may else count


def _within_step(
    got: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance
) -> torch.Tensor:
    a, b = _as_bytes(got).double(), expected.double()
    near, off = tolerance.absolute + tolerance.relative * b.abs(), (a - b).abs()
    inside = (off >= tolerance.least_step - near) & (off <= tolerance.step + near)
    inside &= b.isfinite()
    return inside & (a <= 1) if got.dtype is torch.bool else inside


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return flags as the bytes that they are: of 2 operations make what they like."""
    return tensor.view(torch.uint8) if tensor.dtype is torch.bool else tensor


def _agree(got: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    if got.dtype is torch.bool:  # PyTorch's flags are 0 and 1: 2 is neither.
        return _as_bytes(got) == _as_bytes(expected)
    if not expected.is_floating_point() and not tolerance.absolute:
        return got == expected
    a, b = got.double(), expected.double()
    near = (a - b).abs() <= tolerance.absolute + tolerance.relative * b.abs()
    # An infinite expectation makes the tolerance infinite: only the same infinity agrees with it.
    return (near & a.isfinite() & b.isfinite()) | (a == b) | (a.isnan() & b.isnan())


def _largest(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    a, b = got.double(), expected.double()
    difference = torch.where(a.isfinite() & b.isfinite(), (a - b).abs(), 0.0)
    return difference.max()


def _places(
    got: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Return the first differing index in row-major order and the box of all of them."""
    wrong = torch.cat([~_agree(a, b, tolerance) for a, b in _chunks(got, expected)])
    flat = 0
    for part in parts(wrong):  # The places of all take eight bytes each.
        if part.any():
            flat += int(part.nonzero()[0])
            break
        flat += part.numel()
    wrong = wrong.reshape(got.shape)
    index: list[int] = []
    region = []
    for axis in reversed(range(got.dim())):
        flat, remainder = divmod(flat, got.shape[axis])
        index.insert(0, remainder)
    for axis in range(got.dim()):
        others = [other for other in range(got.dim()) if other != axis]
        line = wrong.any(dim=others) if others else wrong
        places = line.nonzero().reshape(-1)
        region.append((int(places[0]), int(places[-1])))
    return tuple(index), tuple(region)

"""How far may an answer be from PyTorch's? As far as rounding explains, and never as far as wrong.

The rules, for each floating output of a case, in which rms is the root mean square of its finite
elements and own the error that PyTorch itself makes beyond the relative part:

- relative: KernelBench's for the type. A half-precision output of a task that computes in float is
  judged by the operation before the cast: float's, and one rounding to the output's type. Where
  PyTorch computes in half precision itself its largest elements may be a percent off and more, and
  another kernel's are by as much to the other side;
- absolute: KernelBench's, times rms where that is below 1 (the elements of a softmax over thousands
  are all smaller than 1e-4, and zeros would pass), or above 1 where inputs are large (sums of large
  terms that cancel are precise relative to the terms only); or a multiple of own, where that is
  more: another order of summation is no error. That an answer is rounded to a half type once is
  none of own;
- both parts: as far as plain sums in single precision are from exact ones (rounding.py): relative
  for what is as large as rms, and absolute for the rest;
- the absolute part never more than LARGEST_SHARE of rms, the relative one of 1. Where PyTorch's own
  error is larger than that (rounding to whole numbers, sums that cancel to nothing), or that of
  plain sums (a variance of equal numbers that a hundred layers amplify), the output proves nothing:
  it is not compared. Nor is one of which the exact answer itself would be refused, by a hair: half
  precision's scores of attention, of which the largest alone counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import torch

from ...judge.tensor_comparison import agree, parts
from ...records.tensors import Tolerance
from ...task.rules import LARGEST_SHARE, OWN_ERROR_FACTOR, TOLERANCES
from .rounding import WALK, WALK_OF_MOST
from .steps import MOST_STEPPED, Steps

BOTH_SIDES = 2.0
"""An answer that is as far off as PyTorch's, to the other side, is so many times that from it."""
EXAMPLE_FACTOR = 3.0
"""And this many times as far as one plain kernel is."""

FEW_ELEMENTS = 16

Scale = Literal["down", "up", "both"]

_ROUNDING = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
"""One unit in the last place of the smallest fraction: each of two answers is rounded by half."""
_SMALLEST = {torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133}


def tolerance_of(
    answer: torch.Tensor,
    exact: torch.Tensor | None,
    plain: torch.Tensor | None = None,
    *,
    scale: Scale,
    cast: bool,
    factor: float = OWN_ERROR_FACTOR,
    is_example: bool = False,
) -> Tolerance | None:
    """Return the tolerance of an output, 0 where it holds no floating numbers; None for one that
    PyTorch itself does not meet.

    Args:
        answer: PyTorch's.
        exact: the same in double precision; None where that is not known.
        plain: the same as plain sums make it, see rounding.py; None where that is not known.
        scale: which way the absolute part follows rms. What PyTorch computes without any error is
            not scaled up, and what has few elements, whose rms says little, not down.
        cast: whether the task computes in float and the output was cast to half precision.
        factor: how many times PyTorch's own error a candidate may make.
        is_example: whether `plain` is what one kernel makes, and not the worst that any may.
    """
    base = base_of(answer.dtype, cast)
    if base is None:
        return Tolerance(absolute=0.0, relative=0.0)
    square = root_mean_square(answer)
    rounding = _ROUNDING.get(answer.dtype, 0.0) / 2
    own = several = 0.0
    relative = base.relative
    if exact is not None:
        if rounding and not cast:
            own_share = BOTH_SIDES * relative_error(answer, exact, square)
            relative = max(relative, min(own_share, LARGEST_SHARE))
        own = excess(answer, exact, relative, rounding)
        several = excess(answer, exact, relative, rounding, factor)
        if plain is not None:
            # The factor is of the relative part: what peaks are off is no room for all the rest.
            times = EXAMPLE_FACTOR if is_example else 1.0
            own_share = times * relative_error(plain, exact, square)
            relative = max(relative, min(own_share, LARGEST_SHARE))
            beyond = excess(plain, exact, relative)
            several = max(several, times * beyond)
            # Where all of it is a bound, most kernels are as much less off as most sums are.
            own = max(own, beyond * (1.0 if is_example else WALK_OF_MOST / WALK))
    absolute = base.absolute
    if scale != "down" and (exact is None or excess(answer, exact, 0.0) > 0.0):
        absolute *= max(1.0, square)
    if scale != "up" and 0.0 < square < 1.0 and answer.numel() > FEW_ELEMENTS:
        absolute *= square
    limit = LARGEST_SHARE * square if square > 0.0 else math.inf
    if own > limit:
        return None
    smallest = _SMALLEST.get(answer.dtype, 0.0)
    found = Tolerance(absolute=smallest + min(max(absolute, several), limit), relative=relative)
    if exact is not None and not _accepts(found, answer, exact):
        return None
    return found


def _accepts(tolerance: Tolerance, answer: torch.Tensor, exact: torch.Tensor) -> bool:
    """Say whether the exact answer, in the output's type, agrees where both are finite."""
    for got, right in zip(parts(answer), parts(exact), strict=True):
        rounded = right.to(got.dtype)
        compared = rounded.isfinite() & got.isfinite()
        if not agree(torch.where(compared, rounded, got), got, tolerance):
            return False
    return True


def with_steps(tolerance: Tolerance | None, steps: Steps | None) -> Tolerance | None:
    """Return a tolerance with room for the elements that make a step.

    Where more than a few may, few of the floating ones still do, in most kernels, and whole numbers
    are judged as floating ones: as near as their step.
    None where most are no larger than that: of flags any would be right.
    """
    if tolerance is None or steps is None:
        return tolerance
    if steps.share <= MOST_STEPPED or tolerance.absolute:
        share = min(steps.share, MOST_STEPPED)
        room = {"step": steps.size, "least_step": steps.least, "share": share}
        return tolerance.model_copy(update=room)
    if steps.least >= root_mean_square(steps.exact):
        return None
    return Tolerance(absolute=steps.least, relative=TOLERANCES["float32"].relative)


def base_of(dtype: torch.dtype, cast: bool) -> Tolerance | None:
    """Return KernelBench's tolerance for a type; None for one that holds no floating numbers."""
    if not cast:
        return TOLERANCES.get(str(dtype).removeprefix("torch."))
    before = TOLERANCES["float32"]
    return Tolerance(absolute=before.absolute, relative=before.relative + _ROUNDING[dtype])


def excess(
    answer: torch.Tensor,
    exact: torch.Tensor,
    relative: float,
    rounding: float = 0.0,
    factor: float = 1.0,
) -> float:
    """Return how far an answer is from the exact one beyond the relative part of its tolerance.

    The largest element's. An error of `rounding`, relative, is taken off before it is multiplied
    by `factor`.
    """
    largest = 0.0
    for got, wanted in zip(parts(answer), parts(exact), strict=True):
        error = ((got.double() - wanted).abs() - rounding * wanted.abs()).clamp_(min=0.0)
        error = factor * error - relative * wanted.abs()
        largest = max(largest, float(torch.where(error.isfinite(), error, 0.0).max()))
    return largest


def relative_error(answer: torch.Tensor, exact: torch.Tensor, least: float) -> float:
    """Return the largest error, relative, of the elements that are at least so large."""
    largest = 0.0
    for got, wanted in zip(parts(answer), parts(exact), strict=True):
        error = (got.double() - wanted).abs() / wanted.abs()
        counts = error.isfinite() & (wanted.abs() >= least)
        largest = max(largest, float(torch.where(counts, error, 0.0).max()))
    return largest


def all_finite(answers: Iterable[torch.Tensor]) -> bool:
    """Say whether no element is infinite or undefined."""
    return all(bool(torch.isfinite(part).all()) for answer in answers for part in parts(answer))


def root_mean_square(answer: torch.Tensor) -> float:
    """Return the root of the mean square of the finite elements; 0 where there are none."""
    total, count = 0.0, 0
    for part in parts(answer):
        squares = part.to(torch.float64, copy=True).square_()
        finite = squares.isfinite()
        total += float(torch.where(finite, squares, 0.0).sum())
        count += int(finite.sum())
    return math.sqrt(total / max(1, count))


def same(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Say whether two tensors are alike, no number beside no number included."""
    if other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(torch.equal(one.nan_to_num(nan=0.5), other.nan_to_num(nan=0.5)))

"""How far an answer may be from PyTorch's, term by term."""

from __future__ import annotations

import pytest
import torch

from kernelblaster.harness.judge.tensor_comparison import all_agree, compare
from kernelblaster.harness.records.tensors import Tolerance
from kernelblaster.harness.reference.precision.tolerances import (
    Scale,
    all_finite,
    excess,
    root_mean_square,
    tolerance_of,
)
from kernelblaster.harness.task.rules import LARGEST_SHARE, OWN_ERROR_FACTOR

ONES = torch.ones(64)


def found(
    answer: torch.Tensor, exact: torch.Tensor | None = None, scale: Scale = "both",
    cast: bool = False,
) -> Tolerance:  # fmt: skip
    tolerance = tolerance_of(answer, exact, scale=scale, cast=cast)
    assert tolerance is not None
    return tolerance


@pytest.mark.parametrize(
    ("size", "elements", "scale", "absolute"),
    [
        (1.0, 64, "both", 1e-4),
        (10.0, 64, "both", 1e-3),
        (10.0, 64, "up", 1e-3),
        (10.0, 64, "down", 1e-4),
        (0.1, 64, "both", 1e-5),
        (0.1, 64, "down", 1e-5),
        (0.1, 64, "up", 1e-4),
        (0.1, 16, "both", 1e-4),
        (0.1, 17, "both", 1e-5),
        (1e-3, 16, "both", LARGEST_SHARE * 1e-3),
        (0.0, 64, "both", 1e-4),
    ],
)
def test_the_absolute_part_follows_rms(
    size: float, elements: int, scale: Scale, absolute: float
) -> None:
    tolerance = found(torch.full((elements,), size), scale=scale)
    assert tolerance.absolute == pytest.approx(absolute, rel=1e-6)
    assert tolerance.relative == 1e-4


def test_what_is_computed_without_error_is_not_scaled_up() -> None:
    answer = 10 * ONES
    assert found(answer, answer.double()).absolute == pytest.approx(1e-4)
    assert found(answer, answer.double() + 1e-9).absolute == pytest.approx(1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", ["alike", "peaked"])
def test_where_pytorch_computes_in_half_precision_others_may_be_as_far_off_to_the_other_side(
    dtype: torch.dtype, rows: str
) -> None:
    """As a softmax of a product is: of thousands few are large, and these are a percent off."""
    stream = torch.Generator().manual_seed(5)
    exact = torch.rand(64, 512, generator=stream, dtype=torch.float64) + 0.5
    if rows == "peaked":
        exact = (exact * 8).softmax(1)
    off = 0.014 * (torch.rand(64, 512, generator=stream, dtype=torch.float64) * 2 - 1)
    answer = (exact * (1 + off)).to(dtype)
    tolerance = found(answer, exact)
    for right in (exact.to(dtype), (exact * (1 - off)).to(dtype)):
        error, size = (right.double() - answer.double()).abs(), answer.double().abs()
        assert bool((error <= tolerance.absolute + tolerance.relative * size).all())
    assert tolerance.relative < 0.04
    assert tolerance.absolute <= 1.01 * LARGEST_SHARE * root_mean_square(answer)
    near = exact.to(torch.float32).to(dtype)
    assert found(near, exact, cast=True).relative < 0.01, "float's, and one rounding"


def test_there_is_room_for_several_times_pytorch_s_own_error() -> None:
    exact = ONES.double() + 2e-3
    wide = OWN_ERROR_FACTOR * 2e-3 - 1e-4 * (1 + 2e-3)
    assert found(ONES, exact).absolute == pytest.approx(wide, rel=1e-4)
    assert found(ONES, ONES.double() + 0.02).absolute == pytest.approx(LARGEST_SHARE)
    assert tolerance_of(ONES, ONES.double() + 0.1, scale="both", cast=False) is None


def test_what_only_a_bound_exceeds_is_compared_and_what_a_kernel_exceeds_is_not() -> None:
    exact = ONES.double()
    plain = exact + 3 * LARGEST_SHARE
    assert tolerance_of(ONES, exact, plain, scale="both", cast=False) is not None
    assert tolerance_of(ONES, exact, plain, scale="both", cast=False, is_example=True) is None


@pytest.mark.parametrize("off", [2e-5, 5e-4, 4e-3])
def test_there_is_room_for_several_times_what_one_plain_kernel_is_off(off: float) -> None:
    exact = ONES.double()
    tolerance = tolerance_of(ONES, exact, exact + off, scale="both", cast=False, is_example=True)
    assert tolerance is not None
    assert all_agree([(exact + 2.9 * off).float()], [ONES], [tolerance])
    most = max(1e-4 + 1e-4, 3 * off + 1e-4)
    assert not all_agree([(exact + 1.1 * most).float()], [ONES], [tolerance])


@pytest.mark.parametrize("off", [4e-5, 1e-4])
def test_what_a_plain_kernel_is_off_at_peaks_is_no_room_for_all_the_rest(off: float) -> None:
    exact = 1e-3 * torch.randn(100_000, dtype=torch.float64)
    exact[::5000] = 10.0
    peaks = torch.where(exact == 10.0, exact, 0.0)
    given = (exact.float(), exact, exact * (1 + off))
    tolerance = tolerance_of(*given, scale="both", cast=False, is_example=True)
    assert tolerance is not None
    mismatch = compare(peaks.float(), exact.float(), tolerance, "out0")
    assert mismatch is not None and mismatch.count > 90_000


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("share", [0.0, 1e-3, 0.02, 0.06, 0.0965, 0.098, 0.0999, 0.11, 0.3])
def test_an_exact_answer_is_accepted_or_nothing_is_compared(
    dtype: torch.dtype, share: float
) -> None:
    """PyTorch's own error decides, wherever it is: the exact answer is never refused."""
    generator = torch.Generator().manual_seed(1)
    exact = 16 * torch.rand(4096, generator=generator, dtype=torch.float64) + 8
    answer = exact.clone()
    answer[7] *= 1 - share  # Smaller, so that the relative part of its tolerance is, too.
    answer = answer.to(dtype)
    for scale in ("both", "up", "down"):
        tolerance = tolerance_of(answer, exact, scale=scale, cast=False)
        if tolerance is not None:
            assert all_agree([exact.to(dtype)], [answer], [tolerance])
        assert tolerance is not None or share > 0.05


def test_one_number_beyond_the_type_does_not_keep_the_others_from_being_compared() -> None:
    exact = torch.full((64,), 10.0, dtype=torch.float64)
    exact[3] = 65530.0
    answer = exact.clamp(max=65504.0).half()
    assert tolerance_of(answer, exact, scale="both", cast=False) is not None


def test_numbers_of_other_kinds() -> None:
    assert found(torch.arange(4)) == Tolerance(absolute=0, relative=0)
    half = found(ONES.half())
    assert half.absolute == pytest.approx(1e-2 + 2.0**-24) and half.relative == 1e-2
    cast = found(ONES.half(), cast=True)
    assert cast.absolute == pytest.approx(1e-4 + 2.0**-24, rel=1e-9)
    assert cast.relative == pytest.approx(1e-4 + 2.0**-10)
    # Half a unit in the last place is the cast's own.
    rounded = found(ONES.half(), ONES.double() + 2.0**-11, cast=True)
    assert rounded.absolute == pytest.approx(cast.absolute, rel=1e-9)


@pytest.mark.parametrize(
    ("relative", "rounding", "factor", "wanted"),
    [(0.0, 0.0, 1.0, 0.5), (0.1, 0.0, 1.0, 0.35), (0.0, 0.1, 1.0, 0.35), (0.1, 0.1, 4.0, 1.25),
     (0.0, 0.0, 2.0, 1.0), (1.0, 0.0, 1.0, 0.0), (0.0, 1.0, 1.0, 0.0)],
)  # fmt: skip
def test_what_of_an_error_is_beyond(
    relative: float, rounding: float, factor: float, wanted: float
) -> None:
    answer = torch.tensor([1.0, 1.0, float("nan"), float("inf")])
    exact = torch.tensor([1.0, 1.5, 0.0, 3.0]).double()
    assert excess(answer, exact, relative, rounding, factor) == pytest.approx(wanted)


def test_only_finite_elements_count_in_rms() -> None:
    odd = torch.tensor([3.0, 4.0, float("inf"), float("nan")])
    assert root_mean_square(odd) == pytest.approx(12.5**0.5)
    assert root_mean_square(odd[2:]) == 0.0
    assert all_finite([odd[:2]]) and not all_finite([odd[:2], odd])

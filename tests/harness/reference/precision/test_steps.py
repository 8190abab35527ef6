"""Steps: which answers may be one off where numbers are rounded to whole ones, or compared."""

from __future__ import annotations

import math

import pytest
import torch
from small_references import reference

from kernelblaster.harness.judge.tensor_comparison import compare
from kernelblaster.harness.records.tensors import Tolerance
from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.reference.cases.case import Case
from kernelblaster.harness.reference.cases.distributions import widest
from kernelblaster.harness.reference.drawing.draws import Draw, draw
from kernelblaster.harness.reference.precision.steps import MOST_STEPPED

DRAWN = Draw(5, "gaussian", lines="drawn")


def case_of(body: str) -> Case:
    made = reference(body, "torch.randn(64, 256)")
    return Case(made, draw(made, DRAWN, Variation(levels={"x": "any"})))


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ("torch.round(x * 12.7).to(torch.int8)", 0.005),
        ("(x * 12.7).round_()", 0.005),
        ("(torch.softmax(x, dim=1) * 4096).int()", 0.005),
        ("torch.softmax(x, dim=1) > 0.003", 0.005),
        ("torch.round(x * 127.3) / 127.3", 0.02),
        ("torch.bucketize(x * 1.1, torch.arange(-2.0, 2.0, 0.01))", 0.03),
        ("torch.searchsorted(torch.softmax(x, dim=1).cumsum(1), x.abs().contiguous())", 0.03),
        ("torch.div(x, 0.1, rounding_mode='floor')", 0.005),
        ("torch.div(0.5, x.abs() + 0.01, rounding_mode='trunc').int()", 0.005),
        ("torch.floor_divide((x * 100).trunc().int(), 0.3)", 0.05),
        ("(x * 1.1).floor_divide_(0.1)", 0.005),
        ("x % 0.1", 0.005),
        ("torch.fmod(x * 1.1, 0.1)", 0.005),
        ("(x * 11.1).remainder_(x.abs() + 0.2)", 0.005),
        ("torch.frac(x * 11.1)", 0.005),
        ("torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)", 0.005),
        ("torch.fake_quantize_per_channel_affine(x * 1.1, torch.full((64,), 0.1), "
         "torch.zeros(64, dtype=torch.int32), 0, -128, 127)", 0.005),
        ("torch.empty(64, 256, dtype=torch.int32).copy_(x * 12.3)", 0.005),
        ("torch.signbit(x * 1.1 - 0.3)", 0.005),
    ],
)
def test_what_is_computed_and_then_rounded_may_be_a_step_off(body: str, most: float) -> None:
    case = case_of(body)
    (tolerance,) = case.tolerances("both")
    assert tolerance is not None and 0 < tolerance.share <= most
    right = case.outputs[0]
    moved = right.clone().reshape(-1)
    count = math.ceil(tolerance.share * moved.numel())
    few = moved[:count]
    moved[:count] = ~few if right.dtype is torch.bool else few + few.new_tensor(tolerance.step)
    assert compare(moved.view_as(right), right, tolerance, "out0") is None
    everywhere = ~right if right.dtype is torch.bool else right + right.new_tensor(tolerance.step)
    assert compare(everywhere, right, tolerance, "out0") is not None
    for value in (right.reshape(-1)[0], right.double().mean()):
        constant = torch.full_like(right, value.item())
        assert compare(constant, right, tolerance, "out0") is not None


CHOSEN = (
    "ge(torch.softmax(x, dim=1).amax(1, keepdim=True))",
    "lt(torch.softmax(x, dim=1).topk(8).values[:, -1:])",
    "lt(torch.softmax(x, dim=1).sort(1, descending=True).values[:, 7, None].expand(-1, 256))",
    "ge(torch.softmax(x, dim=1).cummax(1).values)",
)
"""Flags by a border that was chosen from what is compared with it: a kernel finds both the same."""


@pytest.mark.parametrize(
    "body",
    [
        "torch.floor(x).to(torch.int32)",
        "(x * 2 > 1)",
        "(x.int().float() * 0.5).int()",
        "torch.argmax(x * 1.1, dim=1)",
        "torch.relu(x * 1.1)",
        "torch.where(x * 1.1 > 0, x * 1.1, 0)",
        "x.int() // 3",
        "x.trunc() % 3",
        "torch.div(x, 2, rounding_mode='floor')",
        "torch.frac(x)",
        "x >= x.amax(1, keepdim=True)",
        *(f"torch.softmax(x, dim=1).{each}" for each in CHOSEN),
        "torch.where(x * 1.1 > 0.3, 1.0, 0.0)",
        "x.clone().copy_(x * 1.1)",
    ],
)
def test_what_is_exact_makes_no_step(body: str) -> None:
    (tolerance,) = case_of(body).tolerances("both")
    assert tolerance is not None and tolerance.share == tolerance.step == 0


def test_of_local_maxima_those_have_room_that_are_nearly_their_neighbours() -> None:
    around = "F.max_pool2d(torch.softmax(x, dim=1)[None], (1, 31), 1, (0, 15))[0]"
    case = case_of(f"torch.softmax(x, dim=1) >= {around}")
    (tolerance,) = case.tolerances("both")
    assert tolerance is not None and tolerance.share < 1e-4 < 0.01 < case.outputs[0].double().mean()


def test_large_numbers_are_judged_as_floating_ones() -> None:
    (tolerance,) = case_of("(x * 1e6).to(torch.int32)").tolerances("both")
    assert tolerance is not None
    assert (tolerance.absolute, tolerance.relative, tolerance.share) == (1, 1e-4, 0)


def test_flags_of_which_any_would_be_right_are_not_compared() -> None:
    made = reference("torch.softmax(x, dim=1) >= 1 / 250", "torch.randn(64, 250)")
    case = Case(made, draw(made, Draw(2, "constant"), Variation(levels={"x": "any"})))
    assert case.tolerances("both") == (None,)


def test_a_step_to_infinity_is_no_room_for_other_numbers() -> None:
    made = reference("(x * 12.7).round() / ((x * 12.7).round() - 3)", "torch.randn(256, 256)")
    case = Case(made, draw(made, DRAWN, Variation(levels={"x": "any"})))
    (tolerance,) = case.tolerances("both")
    assert tolerance is not None and 0 < tolerance.step < 100


def test_of_many_floating_answers_that_may_make_a_step_few_do() -> None:
    body = "torch.round((x @ x.T).float() * 4.3) / 4.3"
    made = reference(body, "torch.randn(64, 256).bfloat16()")
    case = Case(made, draw(made, DRAWN, Variation(levels={"x": "any"})))
    (tolerance,) = case.tolerances("both")
    assert tolerance is not None and tolerance.share == MOST_STEPPED


def test_of_several_draws_the_widest_has_room_for_the_steps_of_all() -> None:
    near = Tolerance(absolute=1, relative=0, step=3, least_step=2, share=0.01)
    far = Tolerance(absolute=2, relative=0)
    assert widest([near, far]) == far.model_copy(
        update={"step": 3, "least_step": 2, "share": 0.01}
    )
    assert widest([near, None]) is None


def test_room_goes_by_the_precision_that_is_rounded_and_not_by_the_inputs() -> None:
    made = reference("(x.float() / 0.03).round().clamp(-127, 127).to(torch.int8)",
                     "torch.randn(64, 256).bfloat16()")  # fmt: skip
    case = Case(made, draw(made, DRAWN, Variation(levels={"x": "any"})))
    (tolerance,) = case.tolerances("both")
    assert tolerance is not None and tolerance.absolute == 0 and tolerance.share < 0.02
    truncated = (case.instance.inputs["x"].float() / 0.03).clamp(-127, 127).to(torch.int8)
    assert compare(truncated, case.outputs[0], tolerance, "out0") is not None


@pytest.mark.parametrize("body", ["(x * 1e4) % 1.0", "torch.frac(x * 3e3)", "torch.floor(x * 9.1)"])
def test_what_is_less_than_a_step_off_makes_none(body: str) -> None:
    case = case_of(body)
    (tolerance,) = case.tolerances("both")
    assert tolerance is not None and tolerance.share > 0 and tolerance.least_step > 0.9
    wrong = case.outputs[0].clone()
    few = wrong.reshape(-1)[: int(tolerance.share * wrong.numel())]
    few += torch.where(few < 0.5, 0.4, -0.4)
    assert compare(wrong, case.outputs[0], tolerance, "out0") is not None


def test_what_wraps_is_no_step() -> None:
    (tolerance,) = case_of("(x * 333.3).to(torch.int64) % 7").tolerances("both")
    assert tolerance is not None and 0 < tolerance.share < 0.05 and tolerance.step == 1


def test_what_is_left_of_a_division_is_no_more_than_one_step_off() -> None:
    (tolerance,) = case_of("(x * 1e6) % 1").tolerances("both")
    assert tolerance is not None and tolerance.step <= 1.001


def test_exact_numbers_beside_a_border_that_is_computed_have_room() -> None:
    made = reference("x > x.roll(1, 1) * 1.1", "torch.randn(512, 1024)")
    case = Case(made, draw(made, DRAWN, Variation(levels={"x": "any"})))
    (tolerance,) = case.tolerances("both")
    assert tolerance is not None and 0 < tolerance.share < 0.001 and tolerance.step == 1


def test_a_quotient_cut_off_instead_of_rounded_down_is_wrong() -> None:
    case = case_of("torch.div(x, 0.1, rounding_mode='floor')")
    (tolerance,) = case.tolerances("both")
    assert tolerance is not None
    x = case.instance.inputs["x"]
    assert compare(torch.floor(x * 10.0), case.outputs[0], tolerance, "out0") is None
    cut = torch.div(x, 0.1, rounding_mode="trunc")
    assert compare(cut, case.outputs[0], tolerance, "out0") is not None


def test_a_remainder_with_the_sign_of_its_dividend_is_wrong() -> None:
    case = case_of("x % 0.1")
    (tolerance,) = case.tolerances("both")
    assert tolerance is not None
    x = case.instance.inputs["x"]
    other_way = x - torch.floor(x * 10.0) * 0.1
    assert compare(other_way, case.outputs[0], tolerance, "out0") is None
    assert compare(torch.fmod(x, 0.1), case.outputs[0], tolerance, "out0") is not None


PAIRS = "torch.cat([x * 1.1, x * 1.1 + 1e-5 * (x > 2)], 1)"
"""Of each number another that is as large, or hardly larger where it is large."""


@pytest.mark.parametrize(
    ("body", "others"),
    [
        ("(x @ x.mT * 0.3).topk(8, 1).indices", 1),
        ("(x @ x.mT * 0.3).topk(8, 0, sorted=True)[1]", 1),
        ("(x @ x.mT * 0.3).sort(1)[1]", 1),
        ("(x @ x.mT * 0.3).sort(stable=True, dim=0, descending=True).indices", 1),
        (f"{PAIRS}.topk(8, 1).indices[:, :2]", 1),
        # Of what is exact all is told: inputs, and equal numbers of which the first counts.
        ("x.topk(8, 1).indices", 0),
        ("x.argmax(1)", 0),
        ("(x * 2).max(1)[1]", 0),
        ("x.relu().argmin(1)", 0),
        ("torch.sort(x.sign(), dim=1, stable=True)[1]", 0),
    ],
)
def test_the_places_of_computed_numbers_that_nearly_tie_may_be_others(
    body: str, others: int
) -> None:
    (tolerance,) = case_of(body).tolerances("both")
    assert tolerance is not None and (tolerance.share > 0) == bool(others)
    assert tolerance.share <= MOST_STEPPED and not tolerance.absolute


def test_a_few_places_in_an_order_may_be_any_and_more_of_them_not() -> None:
    case = case_of("(x @ x.mT * 0.3).sort(1)[1]")
    (tolerance,) = case.tolerances("both")
    assert tolerance is not None and 0 < tolerance.share < MOST_STEPPED
    right = case.outputs[0]
    room = int(tolerance.share * right.numel())
    for count, passes in ((room, True), (2 * room + 2, False)):
        other = right.clone().view(-1)
        other[:count] = (other[:count] + 1) % 64
        found = compare(other.view(right.shape), right, tolerance, "out0")
        assert (found is None) == passes

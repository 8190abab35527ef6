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


def case_of(body: str) -> Case:
    made = reference(body, "torch.randn(64, 256)")
    return Case(made, draw(made, Draw(5, "gaussian"), Variation(levels={"x": "any"})))


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ("torch.round(x * 12.7).to(torch.int8)", 0.005),
        ("(torch.softmax(x, dim=1) * 4096).int()", 0.005),
        ("torch.softmax(x, dim=1) > 0.003", 0.005),
        ("torch.round(x * 127.3) / 127.3", 0.02),
        ("torch.bucketize(x * 1.1, torch.arange(-2.0, 2.0, 0.01))", 0.03),
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


@pytest.mark.parametrize(
    "body",
    [
        "torch.floor(x).to(torch.int32)",
        "(x * 2 > 1)",
        "(x.int().float() * 0.5).int()",
        "torch.argmax(x * 1.1, dim=1)",
        "torch.relu(x * 1.1)",
    ],
)
def test_what_is_exact_makes_no_step(body: str) -> None:
    (tolerance,) = case_of(body).tolerances("both")
    assert tolerance is not None and tolerance.share == tolerance.step == 0


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
    case = Case(made, draw(made, Draw(5, "gaussian"), Variation(levels={"x": "any"})))
    (tolerance,) = case.tolerances("both")
    assert tolerance is not None and 0 < tolerance.step < 100


def test_of_many_floating_answers_that_may_make_a_step_few_do() -> None:
    body = "torch.round((x @ x.T).float() * 4.3) / 4.3"
    made = reference(body, "torch.randn(64, 256).bfloat16()")
    case = Case(made, draw(made, Draw(5, "gaussian"), Variation(levels={"x": "any"})))
    (tolerance,) = case.tolerances("both")
    assert tolerance is not None and tolerance.share == MOST_STEPPED


def test_of_several_draws_the_widest_has_room_for_the_steps_of_all() -> None:
    near = Tolerance(absolute=1, relative=0, step=3, share=0.01)
    far = Tolerance(absolute=2, relative=0)
    assert widest([near, far]) == Tolerance(absolute=2, relative=0, step=3, share=0.01)
    assert widest([near, None]) is None


def test_room_goes_by_the_precision_that_is_rounded_and_not_by_the_inputs() -> None:
    made = reference("(x.float() / 0.03).round().clamp(-127, 127).to(torch.int8)",
                     "torch.randn(64, 256).bfloat16()")  # fmt: skip
    case = Case(made, draw(made, Draw(5, "gaussian"), Variation(levels={"x": "any"})))
    (tolerance,) = case.tolerances("both")
    assert tolerance is not None and tolerance.absolute == 0 and tolerance.share < 0.02
    truncated = (case.instance.inputs["x"].float() / 0.03).clamp(-127, 127).to(torch.int8)
    assert compare(truncated, case.outputs[0], tolerance, "out0") is not None


def test_what_wraps_is_no_step() -> None:
    (tolerance,) = case_of("(x * 333.3).to(torch.int64) % 7").tolerances("both")
    assert tolerance is not None and 0 < tolerance.share < 0.05 and tolerance.step == 1

"""Inputs so small that an epsilon shows, wherever forward() adds one, and no smaller."""

from __future__ import annotations

import pytest
from small_references import reference

from kernelblaster.harness.judge.tensor_comparison import all_agree
from kernelblaster.harness.reference.cases.case import Case
from kernelblaster.harness.reference.cases.distributions import first_finite
from kernelblaster.harness.reference.cases.epsilon import FAINT, OtherEpsilon
from kernelblaster.harness.reference.cases.exploration import explore
from kernelblaster.harness.reference.drawing.draws import Draw, draw

IMAGES = "torch.randn(4, 8, 6, 6)"


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("F.layer_norm(x, (40,))", "torch.randn(N, 40)"),
        ("F.layer_norm(x, (40,), eps=1e-3)", "torch.randn(N, 40)"),
        ("F.rms_norm(x, (40,), eps=1e-8)", "torch.randn(N, 40)"),
        ("F.group_norm(x, 4)", IMAGES),
        ("F.instance_norm(x)", IMAGES),
        ("F.batch_norm(x, None, None, training=True)", IMAGES),
        ("x / (x.std(1, keepdim=True) + 1e-6)", "torch.randn(N, 40)"),
        ("x / torch.clamp(x.norm(dim=1, keepdim=True), min=1e-6)", "torch.randn(N, 40)"),
        ("F.normalize(x, dim=1)", "torch.randn(N, 40)"),
        ("x * torch.rsqrt(x.square().mean(1, keepdim=True) + self.eps)", "torch.randn(N, 40)"),
    ],
)
def test_another_epsilon_is_a_wrong_answer(body: str, inputs: str) -> None:
    init = "self.register_buffer('eps', torch.tensor(1e-5))" if "self" in body else "pass"
    made = reference(body, inputs, init=init)
    variation = explore(made)
    assert (variation.uniform_width < 1) is ("1e-3" not in body)
    case = Case(made, draw(made, Draw(2, "uniform"), variation))
    for factor in (0.0, 2.0, 10.0):
        with OtherEpsilon(factor):
            answers = made.outputs(case.model, list(case.instance.inputs.values()))
        assert not all_agree(answers, case.outputs, case.tolerances("both"))


@pytest.mark.parametrize(
    "body",
    ["x * 0.5 + 1.0", "torch.softmax(x, 1)", "F.leaky_relu(x, 1e-3)",
     "x / torch.sqrt(x.square().mean(1, keepdim=True) + 1.0 + 1e-9)", "x.clamp(min=0.0)"],
)  # fmt: skip
def test_what_has_no_epsilon_or_hides_it_is_tried_at_its_usual_width(body: str) -> None:
    assert explore(reference(body)).uniform_width == 1.0


@pytest.mark.parametrize(
    ("body", "faint"),
    [
        ("x / x.norm(dim=1, keepdim=True)", True),
        ("(x != 0).sum(1)", True),
        ("torch.sign(x)", True),
        ("x.argmax(1)", True),
        ("torch.log(x.abs())", True),
        ("x / x.square().mean().sqrt() + x", True),
        ("x.tanh() / x.tanh().norm(dim=1, keepdim=True)", False),  # Plain ones return zero there.
        ("(torch.sign(x), x * 2)", False),  # One answer would be small.
        ("torch.sigmoid(x)", False),  # All would be alike.
        ("x.pow(6) / x.pow(6).sum(1, keepdim=True)", False),  # No number is so small.
        ("x * 2", False),
    ],
)
def test_what_is_no_smaller_for_small_inputs_is_tried_on_them(body: str, faint: bool) -> None:
    made = reference(body)
    variation = explore(made)
    assert variation.uniform_width == (FAINT if faint else 1.0)
    case, how = first_finite(made, variation, 2, "uniform", None)
    assert how.distribution == "uniform" and case.finite
    assert (float(case.tensors["x"].abs().max()) < 1e-8) is faint

"""Parameters as training may leave them: in one case of all, as far as forward() survives it."""

from __future__ import annotations

import pytest
import torch
from small_references import X, cases, reference

from kernelblaster.harness.judge.tensor_comparison import all_agree
from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.reference.cases.distributions import first_finite
from kernelblaster.harness.reference.cases.exploration import explore
from kernelblaster.harness.reference.drawing.draws import Draw, draw
from kernelblaster.harness.reference.drawing.trained import retrain

NORM = "self.n = nn.BatchNorm1d(40).eval(); self.n.running_var = torch.rand(40) + 0.5"


def is_of_all_kinds(tensor: torch.Tensor) -> bool:
    """Say whether some elements are below zero, above it, below 1 in magnitude and above it."""
    return bool(
        (tensor < 0).any() and (tensor > 0).any()
        and (tensor.abs() < 1).any() and (tensor.abs() > 1).any()
    )


@pytest.mark.parametrize(
    ("init", "body"),
    [
        ("self.p = nn.PReLU(40)", "self.p(x)"),
        ("self.p = nn.LayerNorm(40)", "self.p(x)"),
        ("self.p = nn.Linear(40, 8)", "self.p(x)"),
        ("self.p = nn.Linear(40, 8).bfloat16()", "self.p(x.bfloat16())"),
        ("self.p = nn.Parameter(torch.ones(8, 40))", "torch.tanh(x @ self.p.t())"),
        ("self.p = nn.Parameter(torch.rand(8, 40))", "x @ self.p.t()"),
        ("self.register_buffer('p', torch.rand(40))", "x * self.p"),
        ("self.p = nn.LSTM(40, 8)", "self.p(x)[0]"),
        ("self.p = nn.Sequential(*[m for _ in range(3) for m in (nn.Linear(40, 40), "
         "nn.LayerNorm(40), nn.GELU())])", "self.p(x)"),
    ],
)  # fmt: skip
def test_each_is_of_both_signs_and_of_any_size_in_one_case(init: str, body: str) -> None:
    made = reference(body, init=init)
    variation = explore(made)
    found = cases(made, variation)
    kept = found[1].instance.parameters | found[1].instance.buffers
    assert kept and variation.trained.keys() == kept.keys()
    assert all(map(is_of_all_kinds, kept.values()))
    others = found[2].instance.parameters | found[2].instance.buffers
    assert not all(map(is_of_all_kinds, others.values())), "one case only"
    assert found[1].is_precise and all(case.tolerances("both")[0] for case in found)
    ways = [Draw(secret, "full", trained=True) for secret in (11, 12)]
    for how in ways:
        full = draw(made, how, variation)
        assert all(map(is_of_all_kinds, (full.parameters | full.buffers).values()))


def test_a_single_number_is_above_one_in_a_case_and_below_zero_in_another() -> None:
    made = reference("torch.softmax(x * self.t, 1)", init="self.t = nn.Parameter(torch.ones(1))")
    variation = explore(made)
    assert variation.alone == ("t",)
    found = {number: case.instance.parameters["t"] for number, case in
             enumerate(cases(made, variation))}  # fmt: skip
    assert float(found[1]) > 1 and float(found[5]) < 0
    assert all(0 < float(found[number]) < 2.5 for number in (0, 2, 3, 4, 6))


@pytest.mark.parametrize(
    ("init", "body", "levels"),
    [
        (NORM, "self.n(x)", {"n_weight": "any", "n_bias": "any", "n_running_var": "positive"}),
        ("self.v = nn.Parameter(torch.ones(40))", "x / self.v.sqrt()", {"v": "positive"}),
        ("self.v = nn.Parameter(torch.ones(40)); self.b = nn.Parameter(torch.zeros(40))",
         "x / self.v.log1p() + self.b", {"v": "positive", "b": "any"}),
        ("self.v = nn.Parameter(torch.full((40,), 9.0))", "x * (self.v - 8).log()", {}),
    ],
)  # fmt: skip
def test_what_forward_does_not_survive_stays_positive_or_as_it_was(
    init: str, body: str, levels: dict[str, str]
) -> None:
    made = reference(body, init=init)
    variation = explore(made)
    assert variation.trained == levels
    assert all(case.finite for case in cases(made, variation))


def test_biases_that_would_drown_the_input_stay_small() -> None:
    chain = "(nn.Linear(40, 40), nn.LayerNorm(40), nn.GELU())"
    made = reference(
        "self.c(x)", init=f"self.c = nn.Sequential(*[m for _ in range(12) for m in {chain}])"
    )
    variation = explore(made)
    norms = {f"c_{number}_{kind}" for number in range(1, 36, 3) for kind in ("weight", "bias")}
    assert set(variation.trained) == norms
    found = cases(made, variation)
    other, _ = first_finite(made, variation, 101, "gaussian", None)
    told = all_agree(other.outputs, found[1].outputs, found[1].tolerances("both"))
    assert not told


def test_numbers_in_order_stay_so_and_so_do_zeros_that_the_seed_chose() -> None:
    init = "self.a = nn.Parameter(torch.rand(40).sort().values); self.b = torch.randn(40).relu()"
    made = reference("x * self.a + self.b", init=init)
    kept = cases(made, explore(made))[1].instance
    order, own = kept.parameters["a"], made.instance(1).buffers["b"]
    assert bool((order.diff() >= 0).all()) and is_of_all_kinds(order)
    assert is_of_all_kinds(kept.buffers["b"]) and torch.equal(kept.buffers["b"] == 0, own == 0)


def test_a_matrix_of_the_seed_stays_but_for_a_few_elements() -> None:
    generator = torch.Generator().manual_seed(1)
    own = torch.randn(512, 64, generator=generator) / 8
    changed = own.clone()
    retrain(changed, "any", "gaussian", generator, drawn=True)
    others = changed != own
    assert 16 <= int(others.sum()) <= 32 and bool((changed[others].abs() > 1).all())
    retrain(changed, "positive", "gaussian", generator, drawn=False)
    assert bool((changed > 0).all()) and 0.4 < float((changed > 1).float().mean()) < 0.6


def test_still_parameters_and_those_of_other_cases_are_as_before() -> None:
    made = reference("self.p(x)", X, init="self.p = nn.PReLU(40)")
    variation: Variation = explore(made)
    still = draw(made, Draw(0, "normal", still=True), variation).parameters["p_weight"]
    assert bool((still == 0.25).all())
    for case in (0, 2, 3, 4, 5, 6):
        slopes = cases(made, variation)[case].instance.parameters["p_weight"]
        assert 0 < float(slopes.min()) and float(slopes.max()) < 1

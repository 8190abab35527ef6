"""The ends of what forward() accepts: found where they are numbers of the type, and answered."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from small_references import cases, reference

from kernelblaster.harness.reference.cases.ends import end_of, roundest
from kernelblaster.harness.reference.cases.exploration import explore

CHANCE = "torch.sigmoid(torch.randn(N, 40))"
COSINE = "torch.rand(N, 40) * 1.8 - 0.9"


@pytest.mark.parametrize(
    ("body", "inputs", "ends"),
    [
        ("F.binary_cross_entropy(x, torch.ones_like(x) / 2)", CHANCE, (0.0, 1.0)),
        ("torch.special.entr(x) + torch.special.entr(1 - x)", CHANCE, (0.0, 1.0)),
        ("torch.acos(x)", COSINE, (-1.0, 1.0)),
        ("torch.sqrt(1 - x * x)", COSINE, (-1.0, 1.0)),
        ("torch.acosh(x)", "torch.rand(N, 40) + 1.25", (1.0,)),
        ("torch.log(x - 2.5) + torch.sqrt(4.5 - x)", "torch.rand(N, 40) + 3", (4.5,)),
        # Its own ends lie at them already, and are held by hardly any element.
        ("torch.asin(x)", "(torch.rand(N, 40) * 2 - 1).round(decimals=1)", (-1.0, 1.0)),
        # No number answers them, all others are answered, or the type does not hold them.
        ("torch.logit(x)", CHANCE, ()),
        ("torch.atanh(x)", COSINE, ()),
        ("torch.logit(x, eps=1e-6)", CHANCE, ()),
        ("torch.acos(x.clamp(-1, 1))", COSINE, ()),
        ("torch.sqrt(x)", CHANCE, ()),
        ("torch.exp(torch.exp(x * 3))", CHANCE, ()),
        ("torch.sqrt(x - 0.1) + torch.sqrt(0.3 - x)", "torch.rand(N, 40) / 8 + 0.125", ()),
    ],
)
def test_the_ends_that_forward_alone_knows_are_found_and_held_by_a_case(
    body: str, inputs: str, ends: tuple[float, ...]
) -> None:
    made = reference(body, inputs)
    variation = explore(made)
    assert variation.ends == ({"x": ends} if ends else {})
    x = cases(made, variation)[5].tensors["x"]
    assert all(20 < int((x == end).sum()) < 160 for end in ends)


def test_each_input_has_its_own() -> None:
    body = "torch.special.xlogy(x, x) - torch.special.xlogy(x, y)"
    variation = explore(reference(body, f"{CHANCE}, {CHANCE}", "x, y"))
    assert variation.levels == {"x": "positive", "y": "positive"}
    assert variation.ends == {"x": (0.0,)}, "the logarithm of y is none at 0"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 0.5), (0.375, 0.625), (-3.0, 700.0)])
def test_an_end_is_the_last_number_of_its_type(
    dtype: torch.dtype, low: float, high: float
) -> None:
    width = high - low
    own = torch.tensor([low + width / 4, high - width / 4], dtype=dtype)
    asked: list[float] = []

    def accepts(number: float) -> bool:
        asked.append(number)
        return low <= number <= high

    assert (end_of(own, -1, accepts), end_of(own, 1, accepts)) == (low, high)
    assert len(asked) < 40
    assert end_of(own, 1, lambda number: True) is None
    assert end_of(own, 1, lambda number: number < high) is None, "the end itself is refused"


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [("1/3", "1/2", "1/2"), ("-1/100", "1/50", "0"), ("9/4", "12/5", "7/3"), ("-5", "-3", "-3"),
     ("-7/10", "-13/20", "-2/3"), ("1/7", "1/7", "1/7")],
)  # fmt: skip
def test_a_round_number_is_of_the_least_denominator(low: str, high: str, found: str) -> None:
    assert roundest(Fraction(low), Fraction(high)) == Fraction(found)

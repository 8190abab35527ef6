"""No numbers where forward() asks for them, zeros where it guards, least integers elsewhere."""

from __future__ import annotations

import pytest
import torch
from small_references import X, cases, reference

from kernelblaster.harness.reference.cases.exploration import explore

WHOLE = "torch.randint(-9, 9, (N, 40), dtype=torch.int32)"


@pytest.mark.parametrize(
    ("body", "held"),
    [
        ("torch.nan_to_num(x, nan=0.0, posinf=3.0, neginf=-3.0)", ("nan", "inf", "-inf")),
        ("torch.nan_to_num(x)", ("nan",)),  # The largest number has no tolerance.
        ("torch.where(torch.isnan(x), 0.0, x)", ("nan",)),
        ("torch.where(x != x, 0.0, x)", ("nan",)),
        ("torch.where(torch.isinf(x), 0.0, x)", ("inf", "-inf")),
        ("torch.nansum(x, 1)", ("nan",)),
        ("torch.nanmean(x, 1)", ("nan",)),
        ("torch.isfinite(x).float().sum(1)", ("nan", "inf", "-inf")),
        ("torch.where(x == -torch.inf, 0.0, x).sum(1)", ("-inf",)),
        ("torch.where(x > torch.tensor(-torch.inf), x, 1.0)", ("-inf",)),
        ("torch.where(torch.lt(x, float('inf')), x, 1.0)", ("inf",)),
        ("torch.where(x > -1e9, x, 1.0)", None),
        ("torch.isnan(x) * x", None),
        ("F.softplus(x)", None),
        ("x.relu()", None),
    ],
)  # fmt: skip
def test_what_is_no_number_is_held_where_it_is_asked_for(
    body: str, held: tuple[str, ...] | None
) -> None:
    made = reference(body)
    variation = explore(made)
    assert variation.undefined == ({} if held is None else {"x": held})
    found = cases(made, variation)
    for number, case in enumerate(found):
        x = case.tensors["x"]
        odd = [name for name, is_so in (
            ("nan", x.isnan()), ("inf", x == torch.inf), ("-inf", x == -torch.inf)
        ) if bool(is_so.any())]  # fmt: skip
        assert odd == (list(held or ()) if number == 5 else [])
        assert case.finite and float((~x.isfinite()).float().mean()) < 0.1


def test_where_one_input_holds_it_another_holds_a_number() -> None:
    made = reference("torch.fmax(x, y) * 0.5", f"{X}, {X}", "x, y")
    variation = explore(made)
    assert variation.undefined == {"x": ("nan",), "y": ("nan",)}
    held = [each.isnan() for each in cases(made, variation)[5].tensors.values()][:2]
    assert all(bool(each.any()) for each in held) and not bool((held[0] & held[1]).any())


def test_only_the_input_that_is_asked_holds_it() -> None:
    made = reference("torch.nan_to_num(x) * y", f"{X}, {X}", "x, y")
    assert explore(made).undefined == {"x": ("nan",)}


@pytest.mark.parametrize(
    ("body", "guarded"),
    [
        ("x / torch.where(x.abs().amax() == 0, 1.0, x.abs().amax())", True),
        ("x / x.norm().clamp(min=1e-8)", True),
        ("torch.log(x.abs().sum(1).clamp_min(1e-9))", True),
        ("F.normalize(x, dim=1)", True),
        ("x / x.norm()", False),
        ("x / (x.norm() + 1e-8)", False),
        ("x.clamp(min=0.0, max=1.0)", False),
        ("torch.where(x > 0, x, 0.5 * x)", False),
    ],
)
def test_all_is_zero_in_a_case_where_forward_guards_against_it(body: str, guarded: bool) -> None:
    made = reference(body)
    variation = explore(made)
    assert variation.guarded is guarded
    found = cases(made, variation)
    assert bool((found[4].tensors["x"] == 0).all()) is guarded
    assert (float(found[6].tensors["x"].mean()) < 0) is guarded, "something is below zero"


@pytest.mark.parametrize(
    ("body", "common"),
    [("x.abs()", True), ("(x * 2).sum(1)", True), ("x // 3", False), ("x % 7", False),
     ("x / 2", True), ("x >> 1", False)],
)  # fmt: skip
def test_the_least_integer_is_common_where_nothing_is_divided(body: str, common: bool) -> None:
    made = reference(body, WHOLE)
    variation = explore(made)
    found = [case.tensors["x"] for case in cases(made, variation)]
    least = [int((each == -(2**31)).sum()) for each in found]
    assert variation.least is common
    assert (least[3] > 9) is common and (least[6] > 4) is common
    assert not any(least[number] for number in (0, 1, 2, 4, 5))


def test_one_step_of_numbers_in_order_is_most_of_their_span() -> None:
    ends = "torch.cat([torch.zeros(1), torch.rand(63).sort().values * 4096]).long()"
    made = reference("torch.arange(4097.0)[x.clamp(max=4096)]", f"{ends}", "x")
    found = [case.tensors["x"] for case in cases(made, explore(made))]
    spans = [int(each[-1] - each[0]) for each in found]
    steps = [int(each.diff().max()) for each in found]
    assert all(bool((each.diff() >= 0).all()) for each in found)
    assert steps[3] > 0.8 * spans[3] and all(
        step < 0.3 * span for number, (step, span) in enumerate(zip(steps, spans, strict=True))
        if number not in (3, 4) and span
    )  # fmt: skip

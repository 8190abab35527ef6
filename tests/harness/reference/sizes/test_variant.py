"""A task at other sizes: what it costs, and whether it is the same task."""

from __future__ import annotations

import pytest
from small_references import HEAD, MODEL, X

from kernelblaster.harness.records.readings import AS_WRITTEN
from kernelblaster.harness.reference.sizes.small_variant import Cost
from kernelblaster.harness.reference.sizes.variant import Variant


def variant(body: str, inputs: str = X, init: str = "pass", **sizes: int) -> Variant:
    text = "C = 64\n" + (HEAD + MODEL).format(init=init, names="x", body=body, inputs=inputs)
    return Variant(text, "task.py", sizes, AS_WRITTEN)


def test_the_cost_is_all_elements_and_all_that_is_computed() -> None:
    numbers = 64 * 40
    assert variant("x * 2 + 1").cost == Cost(given=2 * numbers, kept=0, work=2 * numbers)
    product = variant("torch.mm(x, self.w)", init="self.w = nn.Parameter(torch.ones(40, 8))").cost
    assert product == Cost(given=numbers + 64 * 8, kept=40 * 8, work=numbers * 8 + 64 * 8)


@pytest.mark.parametrize(("channels", "alike"), [(64, True), (32, True), (16, False)])
def test_a_norm_of_groups_of_hardly_any_elements_is_another_task(
    channels: int, alike: bool
) -> None:
    norm = "self.norm = nn.GroupNorm(8, C)"
    full, small = (
        variant("self.norm(x)", "torch.randn(N, C)", norm, C=each) for each in (64, channels)
    )
    assert small.is_like(full) is alike


@pytest.mark.parametrize(("first", "astray"), [(0, False), (60, True)])
def test_integers_lead_out_of_a_table_only_where_it_is_shorter(first: int, astray: bool) -> None:
    inputs = f"torch.randint({first}, {first} + 64, (N,))"
    assert variant("torch.arange(64.0)[x]", inputs).leads_astray() is astray


@pytest.mark.parametrize(
    ("body", "changed"),
    [("x * 2", []), ("x.add_(1)", ["x"]), ("x.t()[1:].relu_() + 1", ["x"]),
     ("x.clone().relu_()", [])],
)  # fmt: skip
def test_inputs_that_are_changed_are_known(body: str, changed: list[str]) -> None:
    assert variant(body).changed == changed

"""The rules in figures: what they say of inputs and tolerances is what the cases hold."""

from __future__ import annotations

import torch
from small_references import cases, reference

from kernelblaster.harness.records.tensors import Tolerance
from kernelblaster.harness.reference.cases.exploration import explore
from kernelblaster.harness.reference.precision.tolerances import tolerance_of
from kernelblaster.harness.task.rules import (
    CASES,
    KINDS,
    LARGE_FACTORS,
    LARGEST_CLAIMED,
    LARGEST_SHARE,
    LEVELS,
    OFFSETS,
    OWN_ERROR_FACTOR,
)


def test_each_kind_of_inputs_is_what_its_words_say() -> None:
    assert list(KINDS) == [name for _, name, _ in CASES]
    made = reference("x * 2", "torch.rand(N, 400) + 7")
    found = {
        name: case.tensors["x"]
        for case, (_, name, _) in zip(cases(made, explore(made)), CASES, strict=True)
    }
    assert (found["normal"] >= 7).all() and (found["normal"] < 8).all()
    assert abs(float(found["gaussian"].std()) - 1) < 0.2
    assert (found["uniform"] >= -1).all() and (found["uniform"] < 1).all()
    assert abs(float(found["large"].std()) / LARGE_FACTORS[0] - 1) < 0.5
    assert KINDS["large"].endswith(f"{LARGE_FACTORS[0]:g}")
    assert len(found["constant"].unique()) == 1
    assert 0.45 < float((found["zeros"] == 0).float().mean()) < 0.65
    assert abs(float(found["offset"].mean()) - OFFSETS[0]) < 0.1
    assert KINDS["offset"].endswith(f"{OFFSETS[0]:g}")
    assert all(float(each.abs().max()) < LARGEST_CLAIMED for each in found.values())


def test_a_tensor_that_holds_less_than_any_values_has_words_for_it() -> None:
    for body, inputs, level in (
        ("torch.log(x)", "torch.rand(N, 40) + 0.1", "positive"),
        ("torch.log(x - 2.5) + torch.sqrt(4.5 - x)", "torch.rand(N, 40) + 3", "range"),
        ("x * 2", "torch.rand(N, 40)", "any"),
    ):
        found = explore(reference(body, inputs)).levels["x"]
        assert found == level and (found == "any") == (found not in LEVELS)


def test_a_tolerance_is_of_pytorchs_own_error_and_a_share_of_the_answer_at_most() -> None:
    exact = torch.ones(64, 64, dtype=torch.float64)

    def absolute(error: float) -> float:
        found = tolerance_of((exact + error).float(), exact, scale="both", cast=False)
        assert isinstance(found, Tolerance)
        return found.absolute

    assert abs(absolute(2e-3) - (OWN_ERROR_FACTOR * 2e-3 - 1e-4)) < 1e-4
    assert absolute(2e-2) <= LARGEST_SHARE * 1.021

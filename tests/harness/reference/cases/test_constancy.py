"""The operation that makes an answer constant is named, with what it gives."""

from __future__ import annotations

import pytest
from small_references import reference

from kernelblaster.harness.records.variations import Variation
from kernelblaster.harness.reference.cases.constancy import constant_after


@pytest.mark.parametrize(
    ("body", "operation", "result"),
    [
        ("torch.relu(x - 1e3) + 1.0", "relu", "0 everywhere"),
        ("torch.relu(x.sum() - 1e3)", "relu", "0 everywhere"),
        ("(x > 1e9).float()", "gt", "False everywhere"),
        ("torch.maximum(x, torch.arange(40.0) + 1e6)", "maximum", "the same numbers"),
    ],
)
def test_the_first_operation_that_loses_its_input(body: str, operation: str, result: str) -> None:
    said = constant_after(reference(body), Variation(levels={"x": "any"}))
    assert said.startswith(f"{operation} in line ")
    assert said.endswith(f" gives {result} whatever the input")


def test_an_answer_that_varies_has_none() -> None:
    made = reference("torch.relu(x * 2.0) + torch.arange(40.0)")
    assert constant_after(made, Variation(levels={"x": "any"})) == ""

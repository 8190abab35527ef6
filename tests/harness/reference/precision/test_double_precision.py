"""What a model answers in double precision, tensors that forward() makes itself included."""

from __future__ import annotations

import pytest
import torch
from small_references import reference

from kernelblaster.harness.reference.loading.model import Reference
from kernelblaster.harness.reference.precision.double_precision import double_answers, double_run

DECIDES = {
    "a window of times": "torch.softmax(x @ x.T + torch.where((torch.arange(N)[:, None] * 0.1 - "
        "torch.arange(N) * 0.1).abs() <= 0.3, 0.0, -1e9), -1) @ x",
    "buckets": "x + torch.bucketize(torch.arange(40) * 0.05 - 1, torch.linspace(-1, 1, 11))",
    "whole steps": "x + (torch.arange(40) * 0.1 / 0.1).long()",
    "numbers drawn": "x @ torch.randn(40, 40, generator=torch.Generator().manual_seed(0))",
    "numbers drawn and added to": "torch.zeros(9, 40).index_add(0, torch.arange(N) % 9, x) + "
        "torch.randn(9, 40, generator=torch.Generator().manual_seed(0))",
}  # fmt: skip
"""Answers that hang on what forward() makes of its own."""


@pytest.mark.parametrize("name", DECIDES)
def test_what_decides_is_made_as_in_single_precision(name: str) -> None:
    made = reference(DECIDES[name])
    instance = made.instance(0)
    answers = made.outputs(instance.model, instance.arguments)
    (exact,) = double_answers(made, instance.model, instance.arguments, answers)
    assert exact is None or torch.allclose(answers[0].double(), exact, 1e-4, 1e-4)
    assert exact is not None or "drawn" in name


def answered(made: Reference) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an answer, and the same in double precision."""
    instance = made.instance(0)
    model = instance.model
    (answer,) = made.outputs(model, instance.arguments)
    (exact,) = double_run(made, model, instance.arguments)
    return answer, exact


@pytest.mark.parametrize(
    "body",
    [
        "torch.zeros(9, 40).index_add(0, torch.arange(N) % 9, x)",
        "torch.full((40,), float('-inf')).scatter_reduce(0, torch.arange(40) % 7, x[0], 'amax')",
        "torch.ones(40) @ x.T + torch.linspace(0, 1, N)",
        "x.half().float() * 0 + torch.eye(N, 40)",
    ],
)
def test_what_forward_makes_is_of_double_precision_too(body: str) -> None:
    before = torch.get_default_dtype()
    made = reference(body)
    answer, exact = answered(made)
    assert (answer.dtype, exact.dtype) == (torch.float32, torch.float64)
    assert torch.allclose(answer.double(), exact, 1e-3, 1e-4)
    assert torch.get_default_dtype() is before
    assert answered(made)[0].dtype is torch.float32, "its own type is back"

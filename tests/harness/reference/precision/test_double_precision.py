"""What a model answers in double precision, tensors that forward() makes itself included."""

from __future__ import annotations

import pytest
import torch
from small_references import reference

from kernelblaster.harness.reference.loading.model import Reference
from kernelblaster.harness.reference.precision.double_precision import double_run


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

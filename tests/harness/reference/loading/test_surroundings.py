"""What a file finds around it: a GPU that it asks for is where its answers are made."""

from __future__ import annotations

import pytest
import torch
from small_references import reference


@pytest.mark.parametrize(
    "body",
    [
        "x.cuda()",
        "x.cuda(0)",
        "x.to('cuda:0')",
        "x.to(torch.device('cuda'))",
        "torch.ones(40, device=torch.device('cuda')) * x",
    ],
)
def test_what_is_asked_for_on_a_gpu_is_made_on_the_cpu(body: str) -> None:
    made = reference(f"{body} + torch.ones(40, device='cuda')")
    instance = made.instance(0)
    (answer,) = made.outputs(instance.model, instance.arguments)
    assert torch.equal(answer, instance.inputs["x"] + 1)

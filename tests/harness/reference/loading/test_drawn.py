"""Draws answered by name: as under the mode, with no mode at all, and all put back."""

from __future__ import annotations

import pytest
import torch
from small_references import HEAD, X
from torch.overrides import _get_current_function_mode_stack

from kernelblaster.harness.reference.loading.drawn import Draws, without_mode
from kernelblaster.harness.reference.loading.model import Instance, Reference

BY_NAME = {
    "a function": "torch.randn(40) * x",
    "two, one of them twice": "torch.rand_like(x) + torch.rand_like(x) * torch.randn(40)",
    "a method that fills": "x + torch.empty(40).normal_(1.0, 2.0)",
    "in PyTorch's own code": "torch.nn.functional.gumbel_softmax(x)",
    "permuted": "x[:, torch.randperm(40)]",
}
UNDER_ANOTHER_NAME = {
    "a name of the file's": "randn(40) * x",
    "one of two": "randn(40) * torch.randn(40) + x",
}


def instance(body: str) -> Instance:
    text = (
        f"{HEAD}seen = []\nfrom torch import randn\n"
        "from torch.overrides import _get_current_function_mode_stack as modes\n"
        "class Model(nn.Module):\n    def forward(self, x):\n"
        f"        seen.append(len(modes()))\n        return {body}\n"
        f"def get_inputs():\n    return [{X}]\n"
    )
    return Reference(text, "reference.py", {}).instance(0)


@pytest.mark.parametrize("body", [*BY_NAME.values(), *UNDER_ANOTHER_NAME.values()])
def test_draws_answered_by_name_are_those_that_are_given(body: str) -> None:
    made = instance(body)
    before = torch.randn, torch.rand_like, torch.Tensor.normal_, torch.Tensor.exponential_
    plain = without_mode(made.model, made.arguments)
    assert (plain is made.model) == (body in UNDER_ANOTHER_NAME.values())
    assert torch.equal(plain(*made.arguments), made.model(*made.arguments))
    assert before == (
        torch.randn, torch.rand_like, torch.Tensor.normal_, torch.Tensor.exponential_
    )  # fmt: skip
    seen = type(made.model).__mro__[1].forward.__globals__["seen"]
    assert seen[-2:] == [1 if plain is made.model else 0, 1]
    assert not _get_current_function_mode_stack()


def test_what_hangs_on_a_tensor_is_not_drawn_for_a_kernel() -> None:
    made = instance("torch.empty_like(x).bernoulli_(x.sigmoid()) + torch.empty(40).normal_(0, 1)")
    (drawn,) = made.draws
    assert drawn.startswith("normal_line")


def test_what_another_file_draws_has_no_line_of_this_one() -> None:
    with Draws("reference.py") as draws:
        torch.rand(3)
    assert [found[:2] for found in draws.found] == [("rand", 0)]


def test_a_model_that_draws_nothing_is_itself() -> None:
    made = instance("x * 2")
    assert without_mode(made.model, made.arguments) is made.model


def test_a_fault_on_the_way_puts_all_back() -> None:
    made = instance("torch.randn(40) * x")
    plain = without_mode(made.model, made.arguments)
    own = torch.randn
    with pytest.raises(RuntimeError):
        plain(torch.zeros(3, 5), *made.arguments[1:])
    assert torch.randn is own

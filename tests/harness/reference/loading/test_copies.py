"""A copy of a model computes with its own numbers, whatever its functions close over."""

from __future__ import annotations

import copy

import pytest
import torch
from small_references import reference

from kernelblaster.harness.reference.loading.copies import Closure, is_uncopied

KEEPS = {
    "a hook that closes over the model": (
        "self.l = nn.Linear(40, 40); self.f = {}; "
        "self.l.register_forward_hook(lambda m, i, o: self.f.update(k=o))",
        "self.l(x) + self.f['k'] * 0",
    ),
    "a hook of a function that makes hooks": (
        "f = self.f = {}; self.l = nn.Linear(40, 40); make = lambda k: lambda m, i, o: "
        "f.update({k: o}); self.l.register_forward_hook(make('k'))",
        "self.l(x) + self.f['k'] * 0",
    ),
    "a hook with the model as a default": (
        "self.l = nn.Linear(40, 40); self.f = {}; "
        "self.l.register_forward_hook(lambda m, i, o, s=self: s.f.update(k=o))",
        "self.l(x) + self.f['k'] * 0",
    ),
    "a function of the model": (
        "self.l = nn.Linear(40, 40); self.g = lambda x: self.l(x)", "self.g(x)"
    ),
    "functions in a list": (
        "self.l = nn.Linear(40, 40); self.g = [lambda x: self.l(x)]", "self.g[0](x)"
    ),
    "a module of Python": ("import math; self.l = nn.Linear(40, 40); self.g = math",
                           "self.l(x) * self.g.cos(0.0)"),
}  # fmt: skip


@pytest.mark.parametrize("name", KEEPS)
def test_a_copy_is_changed_alone(name: str) -> None:
    init, body = KEEPS[name]
    made = reference(body, init=init)
    instance = made.instance(0)
    copied = copy.deepcopy(instance.model)
    with torch.no_grad():
        copied.l.weight.zero_()
        copied.l.bias.fill_(3.0)
    (changed,) = made.outputs(copied, instance.arguments)
    assert (changed == 3.0).all()
    (own,) = made.outputs(copy.deepcopy(instance.model), instance.arguments)
    assert torch.equal(own, made.outputs(instance.model, instance.arguments)[0])
    assert not (own == 3.0).any()


def test_functions_of_their_own_stay() -> None:
    init = "self.g = F.relu; self.h = lambda x: x + 1"
    model = reference("self.h(self.g(x))", init=init).instance(0).model
    assert model.g is torch.nn.functional.relu and not isinstance(model.h, Closure)


def test_what_cannot_be_copied_is_told_from_other_errors() -> None:
    model = reference("x", init="self.g = (each for each in ())").instance(0).model
    with pytest.raises(TypeError) as refused:
        copy.deepcopy(model)
    assert is_uncopied(refused.value) and not is_uncopied(TypeError("of another kind"))

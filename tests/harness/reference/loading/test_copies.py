"""A copy of a model computes with its own numbers, whatever its functions close over."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from small_references import reference

from kernelblaster.harness.reference.loading.copies import is_uncopied

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
    "a private name": ("self.l = nn.Linear(40, 40); self._g = lambda x: self.l(x)", "self._g(x)"),
    "functions in a tuple of a dictionary": (
        "self.l = nn.Linear(40, 40); self._g = {'k': (lambda x: self.l(x),)}", "self._g['k'][0](x)"
    ),
    "a function in part": (
        "import functools; self.l = nn.Linear(40, 40); "
        "self.g = functools.partial(lambda s, x: self.l(x) * s, 1)", "self.g(x)",
    ),
    "a layer's forward that calls its own": (
        "self.l = nn.Linear(40, 40); own = self.l.forward; self.l.forward = lambda x: own(x) * 1",
        "self.l(x)",
    ),
    "functions that call each other": (
        "self.l = nn.Linear(40, 40); f = lambda x, n=1: self.l(x) if n == 0 else g(x, n - 1); "
        "g = lambda x, n: f(x, n); self.g = g", "self.g(x, 1)",
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
    copied = copy.deepcopy(model)
    assert copied.g is torch.nn.functional.relu and copied.h is model.h


def test_a_function_that_is_held_twice_stays_one() -> None:
    init = (
        "self.l = nn.Linear(40, 40); f = lambda x: self.l(x); self.steps = [f, f]; self.last = f; "
        "self.names = {f: 2}"
    )
    body = "self.last(x) * self.names[self.last] * self.last.__code__.co_argcount"
    made = reference(body, init=init)
    instance = made.instance(0)
    copied = copy.deepcopy(copy.deepcopy(instance.model))
    for model in (instance.model, copied):
        assert inspect.isfunction(model.last) and model.steps[0] is model.steps[1] is model.last
        assert list(model.names) == [model.last]
    assert copied.last is not instance.model.last
    assert torch.equal(*(made.outputs(each, instance.arguments)[0]
                         for each in (instance.model, copied)))  # fmt: skip


def test_what_a_function_closes_over_may_be_what_cannot_be_copied() -> None:
    init = "import threading; self.l = nn.Linear(40, 40); k = threading.Lock(); "
    init += "self.g = lambda x: self.l(x) if k else x"
    made = reference("self.g(x)", init=init)
    instance = made.instance(0)
    assert made.outputs(copy.deepcopy(instance.model), instance.arguments)


def test_what_cannot_be_copied_is_told_from_other_errors() -> None:
    model = reference("x", init="self.g = (each for each in ())").instance(0).model
    with pytest.raises(TypeError) as refused:
        copy.deepcopy(model)
    assert is_uncopied(refused.value) and not is_uncopied(TypeError("of another kind"))

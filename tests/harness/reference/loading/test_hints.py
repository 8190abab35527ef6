"""What running or exporting a reference raises: one line, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from small_references import X, reference

from kernelblaster.harness.records.readings import AS_WRITTEN
from kernelblaster.harness.reference.child import _program
from kernelblaster.harness.reference.loading.hints import (
    MOST_WORDS,
    instead_of,
    instead_of_operator,
    said,
)
from kernelblaster.harness.reference.loading.model import ReferenceFault
from kernelblaster.harness.reference.sizes.variant import Variant

RUN = {
    "cond": (
        "torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))", "torch.where"
    ),
    "gradients": ("torch.autograd.grad(x.sum(), x)[0]", "without gradients"),
    "backward": ("x.sum().backward()", "without gradients"),
    "nested": (
        "torch.nested.nested_tensor([x, x], layout=torch.jagged).to_padded_tensor(0.0)",
        "padded tensor and a mask",
    ),
    "sparse": ("torch.linalg.inv(x.to_sparse())", "sparse tensors are not read"),
}
EXPORTED = {
    "numpy": ("torch.from_numpy(x.numpy() * 2)", X, "x", "torch's own operations"),
    "a count": ("sum([x] * int(n))", f"{X}, torch.tensor(3)", "x, n", "number in get_inputs()"),
    "bincount": (
        "torch.bincount(x, minlength=9)", "torch.randint(0, 9, (N,))", "x", "scatter_add_"
    ),
    "a loss": (
        "F.ctc_loss(x, y, (5, 5), (2, 2))", "torch.randn(5, 2, 9), torch.randint(1, 9, (2, 2))",
        "x, y", "logsumexp",
    ),
    "packed": (
        "self.r(nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 4]), True))[0][0]",
        "torch.randn(2, 5, 4)", "x", "out with a mask",
    ),
}  # fmt: skip
HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F

N = 64
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.r = nn.LSTM(4, 3, batch_first=True)
    def forward(self, {names}):
        return {body}
def get_inputs():
    return [{inputs}]
"""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.seldom] if n == "cond" else []) for n in RUN]
)
def test_what_does_not_run_is_refused_with_what_to_do(name: str) -> None:
    body, words = RUN[name]
    text = HEAD.format(names="x", body=body, inputs="torch.randn(8, 8)")
    with pytest.raises(ReferenceFault) as fault:
        Variant(text, "task.py", {}, AS_WRITTEN)
    line = str(fault.value)
    assert "(line 12)" in line and words in line
    assert "0x" not in line and "\n" not in line and "supports_higher" not in line


@pytest.mark.parametrize("name", EXPORTED)
def test_what_is_not_exported_is_told_with_line_and_what_to_do(name: str) -> None:
    body, inputs, names, words = EXPORTED[name]
    text = HEAD.format(names=names, body=body, inputs=inputs)
    program, why = _program(Variant(text, "task.py", {}, AS_WRITTEN))
    assert program is None
    assert "(line 12)" in why and words in why and "\n" not in why


@pytest.mark.parametrize("answer", ["class_", "dict"])
def test_an_answer_in_a_dictionary_of_any_kind_is_exported(answer: str) -> None:
    text = HEAD.format(names="x", body=f"{answer}(a=x.tanh(), b=x.sum(0), c=None)", inputs=X)
    text += "class class_(dict):\n    pass\n"
    program, why = _program(Variant(text, "task.py", {}, AS_WRITTEN))
    assert program is not None, why
    assert len(program["outputs"]) == 2


def test_what_a_compiler_would_take_is_read_as_it_is() -> None:
    made = reference("self.f(x) + 1", init="self.f = torch.jit.script(nn.ReLU())")
    instance = made.instance(0)
    assert type(instance.model.f) is torch.nn.ReLU


def test_words_are_whole_and_without_addresses_and_links() -> None:
    link = "https://github.com/pytorch/functorch/issues/475"
    for words in (
        f"not a known type. See {link} for more", f"mode {object()} is none", "long " * 200,
        f"of {said!r} in {int.__add__!r}",
    ):  # fmt: skip
        line = said(RuntimeError(words))
        assert len(line) <= MOST_WORDS + 2 and not re.search(r"https?:|0x[0-9a-f]", line), line
    assert said(RuntimeError("one\n  line.")) == "one line"


@pytest.mark.parametrize(
    ("operator", "words"),
    [("cond", "torch.where"), ("flex_attention", "attn_mask"), ("while_loop", "a loop in Python"),
     ("of_another_kind", "write what they compute out")],
)  # fmt: skip
def test_an_operator_that_calls_functions_is_named(operator: str, words: str) -> None:
    error = NotImplementedError(
        f"There was no rule registered for HigherOrderOperator {operator} and mode {object()}.Hint:"
    )
    assert operator in said(error) and "rule" in said(error) and "0x" not in said(error)
    assert words in instead_of(error)


def test_a_list_of_all_kinds_of_tensors_says_nothing() -> None:
    kinds = "[CPU, CUDA, " + "Meta, " * 60 + "SparseCPU, NestedTensorCPU]"
    assert not instead_of(NotImplementedError(f"only available for these backends: {kinds}"))


def test_an_operator_whose_size_hangs_on_values_has_something_instead() -> None:
    assert "torch.where" in instead_of_operator("aten.nonzero.default")
    assert "scatter_add_" in instead_of_operator("aten.bincount.default")


CALLED: dict[str, tuple[Callable[[str], str], str]] = {
    "Model": (lambda text: text.replace("__init__(self)", "__init__(self, c)", 1),
              "get_init_inputs() returns"),
    "forward": (lambda text: text.replace("forward(self, x)", "forward(self, x, y)"),
                "get_inputs() returns"),
    "no module": (lambda text: text.replace("Model(nn.Module)", "Model"),
                  "derive class Model from torch.nn.Module"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLED)
def test_what_is_called_otherwise_names_who_gives_it_its_arguments(name: str) -> None:
    change, words = CALLED[name]
    text = change(HEAD.format(names="x", body="x", inputs=X))
    with pytest.raises(ReferenceFault) as fault:
        Variant(text, "task.py", {}, AS_WRITTEN)
    assert words in str(fault.value)

"""What a reference gives launch: which tensors it may, and what a fault of its file says."""

from __future__ import annotations

import pytest
import torch
from small_references import X, reference

from kernelblaster.harness.reference.loading.model import ReferenceFault, specs, tensor_spec


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.zeros(3, dtype=torch.complex64), "input x has dtype complex64; supported are"),
        (torch.eye(3).to_sparse(), "input x is a sparse tensor"),
        (torch.zeros(3, 0), "input x has no elements (shape [3, 0])"),
    ],
)
def test_what_launch_cannot_take_is_named(tensor: torch.Tensor, words: str) -> None:
    with pytest.raises(ReferenceFault) as fault:
        tensor_spec("x", tensor, "input")
    assert words in str(fault.value)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_tensors_of_any_other_shape_are_taken(shape: tuple[int, ...]) -> None:
    assert tensor_spec("x", torch.zeros(shape), "input") == {
        "name": "x", "shape": list(shape), "dtype": "float32", "role": "input"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("init", "words"),
    [
        ("assert N == 3", "assert N == 3 (line"),
        ("exec('assert False')", "it gives no reason (line"),
    ],
)
def test_a_fault_without_words_says_what_stands_there(init: str, words: str) -> None:
    with pytest.raises(ReferenceFault) as fault:
        reference("x", init=init).instance(0)
    assert f"raises AssertionError: {words}" in str(fault.value)


def test_tensors_come_in_the_order_of_launch() -> None:
    init = "self.w = nn.Parameter(torch.ones(40)); self.register_buffer('c', torch.ones(40))"
    made = reference("(x * self.w + self.c, y)", f"{X}, torch.ones(1)", "x, y", init)
    instance = made.instance(0)
    found = specs(instance, made.outputs(instance.model, instance.arguments))
    assert [(each["role"], each["name"]) for each in found] == [
        ("output", "out0"), ("output", "out1"), ("input", "x"), ("input", "y"),
        ("parameter", "w"), ("buffer", "c"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["blockIdx", "warpSize", "threadIdx", "float4", "uchar2", "max", "expf", "fmaxf", "atomicAdd",
     "make_float2", "half", "uint32_t", "template", "stream", "cudaError"],
)  # fmt: skip
def test_an_input_takes_no_name_of_cuda(name: str) -> None:
    made = reference(name, names=name)
    (found,) = made.instance(0).inputs
    assert found == f"t_{name}"


@pytest.mark.parametrize("name", ["x", "scale", "row", "expand", "float_mask", "sinks", "logits"])
def test_other_names_of_inputs_stay(name: str) -> None:
    assert list(reference(name, names=name).instance(0).inputs) == [name]

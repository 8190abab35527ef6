"""Operators that have kernels stay whole, those that PyTorch can express by them do not."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelblaster.harness.reference.exported.taken_apart import taken_apart


class Model(torch.nn.Module):
    """Answers with a function of its input."""

    def __init__(self, answer: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.answer(x)


def exported(answer: Callable[[torch.Tensor], torch.Tensor]) -> torch.export.ExportedProgram:
    return torch.export.export(Model(answer), (torch.rand(4, 8),))


def operators(program: torch.export.ExportedProgram) -> set[str]:
    return {str(each.target) for each in program.graph.nodes if each.op == "call_function"}


def test_a_program_of_whole_operators_is_as_it_was_written() -> None:
    program = exported(lambda x: (torch.softmax(x, 1).relu_() > 0) & (x.int() & 3 > 1))
    assert {"aten.relu_.default", "aten.__and__.Scalar"} <= operators(program)
    assert taken_apart(program) is program


def test_only_what_is_strange_is_taken_apart() -> None:
    found = operators(taken_apart(exported(lambda x: torch.softmax(x.logit(), 1))))
    assert "aten.softmax.int" in found and "aten.log.default" in found
    assert not any("logit" in name for name in found)

"""What is said to be needed is never more than what a gradient reaches, on small programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernelblaster.harness.bound.flow import Flow
from kernelblaster.harness.bound.needs import Needs
from kernelblaster.harness.records.programs import Program
from kernelblaster.harness.records.tensors import TensorSpec
from kernelblaster.harness.reference.exported.program import export_program
from kernelblaster.harness.reference.loading.model import Instance

pytestmark = pytest.mark.seldom

Shapes = tuple[tuple[int, ...], ...]
PROGRAMS: dict[str, tuple[Shapes, Callable[..., torch.Tensor]]] = {
    "select": (((4, 6, 8),), lambda x: torch.tanh(x)[:, -1, ::2]),
    "pools": (((2, 3, 17, 19),), lambda x: F.avg_pool2d(F.avg_pool2d(x, 2), 3)[:, :, 1:]),
    "groups": (
        ((2, 4, 15, 17), (6, 2, 3, 3)), lambda x, w: F.conv2d(x, w, stride=2, groups=2)[:, 2:5]
    ),
    "cropped": (((2, 4, 15, 17), (6, 4, 3, 3)), lambda x, w: F.avg_pool2d(F.conv2d(x, w), 4)),
    "transposed": (
        ((2, 4, 7, 5), (4, 3, 3, 3)),
        lambda x, w: F.avg_pool2d(F.conv_transpose2d(x, w, stride=2), 4),
    ),
    "transposed part": (
        ((2, 4, 7), (4, 3, 5)),
        lambda x, w: F.conv_transpose1d(x, w, stride=3, padding=2)[..., 3:9],
    ),
    "attention": (
        ((2, 3, 5, 4),) * 3, lambda q, k, v: F.scaled_dot_product_attention(q, k, v)[:, 1, -1]
    ),
    "reshaped": (
        ((6, 4, 8), (8, 12)),
        lambda x, w: (x @ w).view(6, 4, 3, 4)[:, 0].reshape(6, 12)[:, :7],
    ),
    "permuted": (
        ((6, 4, 8), (8, 12)), lambda x, w: (x @ w).permute(2, 0, 1).reshape(72, 4)[5]
    ),
    "joined": (((6, 4), (6, 5)), lambda x, y: torch.cat([x, y], 1)[:, 2:7]),
    "stacked": (((6, 4), (6, 4)), lambda x, y: torch.stack([x, y], 1)[:, 0] + x),
    "batch norm": (((5, 4, 6),), lambda x: F.batch_norm(x, None, None, training=True)[0]),
    "group norm": (((5, 4, 6),), lambda x: F.group_norm(x, 2)[0, 1]),
    "layer norm": (((5, 4, 6),), lambda x: F.layer_norm(x, (4, 6))[0]),
    "softmax": (((5, 4, 6),), lambda x: F.softmax(x, 1)[:, 0, :3]),
    "scan": (((5, 6),), lambda x: torch.cumsum(x, 1)[:, 2]),
    "expanded": (((5, 1), (1, 7)), lambda x, y: (x.expand(5, 7) * y)[2:4]),
    "repeated": (((5, 3),), lambda x: x.repeat(2, 3)[1:3, 2:5]),
    "triangle": (((6, 6), (6, 6)), lambda x, y: torch.tril(x @ y, -1)),
    "triangular factor": (((6, 6), (6, 6)), lambda x, y: (torch.triu(x, 1) @ y)[:2]),
    "summed": (((6, 7, 4),), lambda x: x.sum((0, 2))[3:5]),
    "split": (
        ((6, 12), (12, 12)),
        lambda x, w: sum(part.sum(1) for part in (x @ w).split([3, 4, 5], 1)[::2]),
    ),
    "einsum": (((2, 5, 3), (2, 3, 4)), lambda x, y: torch.einsum("bij,bjk->bik", x, y)[:, 1]),
    "padded": (((3, 5, 6),), lambda x: F.pad(x, (1, 2, -1, 1))[:, :2]),
    "strided": (((2, 8, 8),), lambda x: torch.cat([x[:, ::2, ::2], x[:, 1::2, ::2]], -1)),
    "rolled": (((4, 9),), lambda x: torch.roll(x, 2, 1).flip(0)[1:3, :5]),
    "flat": (((3, 4, 5),), lambda x: x.flatten(0)[3:40]),
    "unbound": (((3, 4, 5),), lambda x: (x.unbind(0)[0] * x.unbind(0)[1])[:2]),
}


class _Model(torch.nn.Module):
    def __init__(self, program: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.program = program

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return self.program(*given)


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_more_is_needed_than_a_gradient_reaches(name: str) -> None:
    shapes, program = PROGRAMS[name]
    torch.manual_seed(0)
    given = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    names = [f"x{place}" for place in range(len(given))]
    instance = Instance(
        _Model(program), tuple(given), dict(zip(names, given, strict=True)), {}, {}, {}, {},
        tuple(names),
    )  # fmt: skip
    exported: dict[str, Any] = export_program(instance)
    tensors = tuple(
        TensorSpec(name=each, shape=shape, dtype="float64", role="input")
        for each, shape in zip(names, shapes, strict=True)
    )
    needs = Needs(Flow(Program(**exported), tensors))
    reached = [torch.zeros(shape, dtype=torch.bool) for shape in shapes]
    for _ in range(3):
        drawn = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
        made = program(*drawn)
        (made * torch.randn_like(made)).sum().backward()
        for seen, each in zip(reached, drawn, strict=True):
            if each.grad is not None:
                seen |= each.grad != 0
    assert any(needs.count(each) for each in names)
    for each, seen in zip(names, reached, strict=True):
        assert needs.count(each) <= int(seen.sum()), each

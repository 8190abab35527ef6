"""as_strided: a view of the memory that a value lies in, where ours lies as PyTorch's does."""

from __future__ import annotations

from pathlib import Path

import pytest
from builtin_support import node, ref, reference, task, written_and_verified

from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.writer import (
    NotWritten,
    write_initial_cuda,
)

STRIDED = """\
class Model(nn.Module):
    def forward(self, x):
        kept = x.exp()
        turned = (x.t() * 2).contiguous()
        changed = x.clone()
        view = torch.as_strided(changed, (4, 4), (9, 1), 2)
        changed[0] += 1
        view.mul_(2)
        return (torch.as_strided(x, (32, 8), (3, 5), 7), torch.as_strided(x[1:], (4, 3), (1, 2)),
                torch.as_strided(kept * 2, (5, 5), (1, 1)), torch.as_strided(turned, (6,), (11,)),
                torch.as_strided(x.t(), (3, 1, 7), (2, 1, 3), 1).sum(0), view, changed)


def get_inputs():
    return [torch.randn(N, W)]
"""


async def test_strided_views_are_what_pytorch_says(tmp_path: Path) -> None:
    made = await load_task(reference(tmp_path, "strided", STRIDED, "N, W = 48, 64"))
    await written_and_verified(made)


@pytest.mark.parametrize("operation", ["aten.exp.default", "aten.clone.default"])
def test_of_what_may_lie_in_another_order_it_is_refused(operation: str) -> None:
    """PyTorch computes a function of a transposed matrix, and a copy, into a transposed one."""
    nodes = [
        node("t", "aten.t.default", [ref("x")], (48, 64)),
        node("far", operation, [ref("t")], (48, 64)),
        node("view", "aten.as_strided.default", [ref("far"), [5, 5], [2, 3], 1], (5, 5)),
    ]
    typed = [each.model_copy(update={"dtype": "float32", "line": 7}) for each in nodes]
    shapes = ((64, 48), (64, 48))
    found = write_initial_cuda(task("far", {"x": shapes}, typed, {"view": ((5, 5), (5, 5))}))
    assert isinstance(found, NotWritten)
    assert "as_strided (line 7)" in found.reason and "contiguous()" in found.reason

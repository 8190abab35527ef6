"""Long rows are sorted by a block, in the steps of a network, as short ones are by counting."""

from __future__ import annotations

from pathlib import Path

import pytest
from builtin_support import reference, written_and_verified

from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.operators import ranks
from kernelblaster.tools.first_kernel.writer import InitialKernel, write_initial_cuda

MODEL = """\
class Model(nn.Module):
    def forward(self, x, whole, exact):
        gaps = torch.where(x > 3.0, torch.nan, x)
        values, places = x.sort(1)
        largest, which = x.topk(50, -1)
        return (values, places, largest, which, x.sort(1, descending=True)[0],
                x.mT.sort(0)[0], x.argsort(1), x.reshape(1, 3, -1).topk(3, largest=False)[0],
                x.half().sort(1)[0], x.bfloat16().sort(1, descending=True)[0],
                whole.sort(1)[0], whole.to(torch.int16).topk(9)[0], (whole << 40).sort(1)[0],
                (whole % 5).to(torch.uint8).sort(1)[0], exact.sort(1)[0],
                (x * 2).round().mul(0.0).sort(1)[0], gaps.sort(1)[0].nan_to_num(77.0),
                gaps.topk(5)[0].nan_to_num(77.0))


def get_inputs():
    return [torch.randn(3, {columns}), torch.randint(-99, 99, (3, {columns})),
            torch.randn(3, {columns}, dtype=torch.float64)]
"""


@pytest.mark.parametrize("columns", [1000, 513, 97])
async def test_long_rows_are_sorted_as_pytorch_sorts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setattr(ranks, "MOST_COMPARED", 64)
    made = await load_task(reference(tmp_path, "sorts", MODEL.format(columns=columns), ""))
    written = write_initial_cuda(made)
    assert isinstance(written, InitialKernel), written
    assert "merged *= 2" in written.source and "++place" not in written.source
    await written_and_verified(made)


async def test_the_largest_of_a_vocabulary_are_found(tmp_path: Path) -> None:
    model = """\
class Model(nn.Module):
    def forward(self, logits):
        values, places = logits.topk(50, -1)
        return values.softmax(-1), places


def get_inputs():
    return [torch.randn(ROWS, 50257)]
"""
    made = await load_task(reference(tmp_path, "top", model, "ROWS = 16"))
    written = write_initial_cuda(made)
    assert isinstance(written, InitialKernel), written
    await written_and_verified(made)

"""Operators that have no kernel are taken apart, where PyTorch says how; the others stay whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from builtin_support import reference, written_and_verified

from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.reference.exported.taken_apart import WHOLE
from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.general import OPERATORS
from kernelblaster.tools.first_kernel.kernels.elementwise import OPERANDS
from kernelblaster.tools.first_kernel.writer import (
    NotWritten,
    write_initial_cuda,
)

MANY = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(W, W))
        self.exact = nn.Linear(W, 5).double()
        self.cell = nn.GRUCell(W, W)
        self.bag = nn.EmbeddingBag(50, 6, mode="mean")
        self.register_buffer("packed", torch.randint(0, 256, (W,), dtype=torch.uint8))
        self.register_buffer("weight", torch.rand(W) + 0.5)
        self.mean = [0.2, 0.3, 0.5]

    def forward(self, x, places, labels):
        rows = x[:, 0]
        pair = torch.vmap(lambda a: torch.softmax(a @ a.t(), -1))(x[:4])
        low = (self.packed & 15).to(torch.int8) - 8
        kept = x.clone()
        kept[:, places[0] % C] = 2.0 * x[:, : len(places[0])]
        kept[kept > 1] = 1.0
        index = (places % C)[:, :, None].expand(-1, -1, W)
        groups = F.scaled_dot_product_attention(
            x[:8].view(2, 4, C, W), x[:4].view(2, 2, C, W), x[4:8].view(2, 2, C, W),
            attn_mask=torch.ones(C, C, dtype=torch.bool).tril(-1), enable_gqa=True)
        sums = torch.zeros_like(x).scatter_reduce(1, index, x, "mean", include_self=False)
        return (self.normed(rows), torch.softmax(self.exact(rows.double()), -1), pair,
                self.cell(rows, rows.tanh()), self.bag(places), low * rows, kept, groups, sums,
                F.cross_entropy(rows, labels, weight=self.weight, label_smoothing=0.1),
                F.binary_cross_entropy_with_logits(rows, rows.sigmoid(), pos_weight=self.weight),
                x[:, :3, 0] - torch.tensor(self.mean), x.logcumsumexp(1), x.median(2).values,
                torch.searchsorted(self.weight.abs().cumsum(0), rows.abs()),
                torch.cdist(x[:2], x[2:4]),
                F.grid_sample(x[:2].unsqueeze(1), x[:2, :4, :6].reshape(2, 4, 3, 2).tanh(),
                              align_corners=False),
                x.flatten().index_put((index.flatten(),), x.flatten(), accumulate=True).sum(),
                rows.masked_scatter(rows > 0, rows.flip(0)), torch.special.erfinv(rows.tanh()))


def get_inputs():
    return [torch.randn(N, C, W), torch.randint(0, 50, (N, C)), torch.randint(0, W, (N,))]
"""
FOURIER = """\
class Model(nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x).abs()


def get_inputs():
    return [torch.randn(8, 16)]
"""
BY_VALUES = """\
class Model(nn.Module):
    def forward(self, x):
        return x[torch.nonzero(x[:, 0] > 0)[:, 0]].sum(0)


def get_inputs():
    return [torch.randn(8, 16)]
"""


async def refusal(folder: Path, body: str) -> tuple[Task, str]:
    """A task without a first kernel, and why."""
    made = await load_task(reference(folder, "refused", body, ""))
    written = write_initial_cuda(made)
    assert isinstance(written, NotWritten)
    return made, written.reason


def test_what_stays_whole_is_what_kernels_are_written_for() -> None:
    own = {"constant", "clamp_by_tensors", "pow_tensor"}
    assert {*OPERATORS, *OPERANDS, "copy"} - own == WHOLE


@pytest.mark.seldom
async def test_what_is_taken_apart_computes_what_pytorch_does(tmp_path: Path) -> None:
    made = await load_task(reference(tmp_path, "many", MANY, "N, C, W = 64, 12, 33"))
    await written_and_verified(made)


async def test_what_cannot_be_taken_apart_keeps_its_name_and_line(tmp_path: Path) -> None:
    made, reason = await refusal(tmp_path, FOURIER)
    assert "fft" in reason and "(line 10)" in reason
    assert made.program is not None


async def test_a_shape_that_hangs_on_values_is_refused_with_what_to_do(tmp_path: Path) -> None:
    made, reason = await refusal(tmp_path, BY_VALUES)
    assert made.program is None and "nonzero" in reason and "line 10" in reason
    assert "torch.where" in reason

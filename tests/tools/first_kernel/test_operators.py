"""Operators written one kernel each: at sizes of their own they compute what PyTorch does.

Each program holds many operators of a family, so that a family costs one compilation; its sizes are
large enough that the task is verified at others than those that it is written for.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from builtin_support import reference, verified
from often_or_seldom import every

from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.writer import InitialKernel, write_initial_cuda

WINDOWS = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain = nn.Conv2d(C, 6, 3, stride=2, padding=1)
        self.apart = nn.Conv2d(C, 4, (3, 2), padding=(2, 1), dilation=(2, 1), bias=False)
        self.groups = nn.Conv2d(C, 2 * C, 3, groups=C // 2)
        self.alone = nn.Conv2d(C, C, 3, padding="same", groups=C)
        self.line = nn.Conv1d(C, 3, 5, stride=3)
        self.solid = nn.Conv3d(1, 2, 3, padding=1)
        self.back = nn.ConvTranspose2d(C, 3, 3, stride=2, padding=1, output_padding=1)
        self.back_groups = nn.ConvTranspose2d(C, C, 4, stride=3, dilation=2, groups=2)
        self.back_line = nn.ConvTranspose1d(C, 2, 3, stride=2)

    def forward(self, x):
        row = x[:, :, 0]
        return (self.plain(x).relu(), self.apart(x), self.groups(x), self.alone(x), self.line(row),
                self.solid(x[:2].unsqueeze(1)), self.back(x), self.back_groups(x),
                self.back_line(row.contiguous()),
                F.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
                F.max_pool1d(row, 4, dilation=2), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
                F.avg_pool2d(x, 2, padding=1, count_include_pad=False), F.avg_pool1d(row, 4),
                F.adaptive_avg_pool2d(x, (3, 5)), F.adaptive_avg_pool2d(x, 1),
                F.interpolate(x, scale_factor=2), F.pixel_shuffle(x, 2),
                F.interpolate(x, size=(7, 9), mode="bilinear"))


def get_inputs():
    return [torch.randn(N, C, H, W)]
"""
SUMS = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.batch = nn.BatchNorm2d(C)
        self.fixed = nn.BatchNorm2d(C).eval()
        self.group = nn.GroupNorm(2, C)
        self.instance = nn.InstanceNorm2d(C, affine=True)
        self.both = nn.LSTM(W, D, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(W, D)

    def forward(self, x, y, labels):
        rows = x[:, 0]
        steps, (last, _) = self.both(rows)
        keys = x[:, 1]
        return (x @ x.transpose(-1, -2), torch.einsum("nchw,ncw->nh", x, x[:, :, 0]),
                torch.einsum("nab,nbc,dc->nad", rows, rows, rows[0]), torch.einsum("naa->n", rows),
                torch.matmul(rows, y), torch.triu(rows).sum(-1), y @ y[0],
                self.batch(x), self.fixed(x), self.group(x), self.instance(x),
                x.var((0, 2), keepdim=True), x.std(), x.abs().amax((1, 3)), x.logsumexp((1, 2)),
                x.argmax(1), rows.argmin(), x.max(2)[1], (x.flatten() * 0.01).sum(),
                x.softmax(1), F.log_softmax(x, 2), x.cumsum(1), rows.flip(1).cumsum(1).flip(1),
                (x * 0.9).cumprod(2), (x > 0).any(3), x.norm(p=1, dim=1),
                F.scaled_dot_product_attention(rows, keys, keys, is_causal=True),
                F.cross_entropy(x[:, :, 0, 0], labels), F.mse_loss(1 - x, x * y[:, 0]),
                F.smooth_l1_loss(rows, keys), F.kl_div(rows.log_softmax(1), keys.softmax(1)),
                F.cosine_similarity(rows, keys, dim=1),
                F.triplet_margin_loss(rows[:, 0], keys[:, 0], rows[:, 1]),
                steps, last, self.gru(rows)[0],
                torch.baddbmm(keys[:, :, :1], rows, y.expand(N, W, D)),
                x.bool().float() + x, (x * 8).to(torch.int32).float(), torch.diag_embed(rows[0]),
                ((x.double() + 1e5) - 1e5).float() * 1000, labels.pow(2).cummax(0)[0],
                (labels * 100003).div(3, rounding_mode="floor").clamp(5, 1 << 30),
                F.pad(labels, (1, 2), value=3), ((labels + 100000001) * 1.0).double() * 0.5)


def get_inputs():
    return [torch.randn(N, C, H, W), torch.randn(W, D), torch.randint(0, C, (N,))]
"""
PRODUCTS = """\
class Model(nn.Module):
    def forward(self, long, other, x, y):
        return (long @ other.mT, other @ long[0].mT, x @ y.mT, x[:, :17] @ y[:, :3].mT,
                torch.einsum("nhw,vw->nhv", x, y[0]), x[0] @ y[0, 0][:, None].expand(W, 35),
                torch.einsum("nhw,khw->nhk", x, y))


def get_inputs():
    return [torch.randn(2, 17, LONG), torch.randn(16, LONG), torch.randn(N, 41, W),
            torch.randn(N, 41, W)]
"""
MOVES = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(D, 5)

    def forward(self, x, places):
        first, second = x.chunk(2, dim=1)
        kept = x.clone()
        kept += 1
        kept[:, 0].relu_()
        turned = x.permute(0, 2, 1)
        low = places % 7
        return (torch.cat([first, second * 2, x], 1), torch.stack([first, second], 2),
                F.pad(x, (1, 2, 0, 3), value=2.5), F.pad(x, (3, 2), mode="reflect"),
                F.pad(x, (2, 1), mode="replicate"), x.roll((2, -1), (1, 2)), x.repeat(1, 2, 1),
                x.tril(-1), turned.reshape(N, -1), x.unfold(2, 3, 2), torch.diagonal(x, 1, 1, 2),
                x[:, 1::2, -3:], x.masked_fill(x > 0.5, -1.0), torch.where(x > 0, x, x * 0.1),
                x.gather(2, low[:, :, None].expand(N, C, 4)), x[:, low[0], :], self.table(places),
                x.topk(3, dim=1)[0], torch.sort(x, dim=2, descending=True, stable=True)[1],
                x.index_select(1, low[0]),
                torch.zeros_like(x).scatter_add(1, low[:, :, None].expand(N, C, W), x), kept,
                torch.arange(W, device=x.device) * 2 + places.sum(1, keepdim=True),
                x.clamp(min=-0.5).floor().long(), (places == 3).float(), x.repeat_interleave(2, 1),
                torch.diag(x[0, 0]), x.expand(2, N, C, W).mean((0, 3)), torch.maximum(x, x.flip(0)),
                F.glu(x, 1), F.one_hot(low, 7).sum(1))


def get_inputs():
    return [torch.randn(N, C, W), torch.randint(0, D, (N, C))]
"""


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return SimulatedDevice("H100")


@pytest.mark.parametrize(
    ("name", "body", "constants"),
    every(
        4,
        [
            ("windows", WINDOWS, "N, C, H, W = 256, 8, 50, 61"),
            ("sums", SUMS, "N, C, H, W, D = 256, 6, 60, 60, 40"),
            ("products", PRODUCTS, "N, W, LONG = 40, 64, 16500"),
            ("moves", MOVES, "N, C, W, D = 1024, 24, 131, 50"),
        ],
    ),
)
async def test_operators_compute_what_pytorch_does(
    device: SimulatedDevice, tmp_path: Path, name: str, body: str, constants: str
) -> None:
    made = await load_task(reference(tmp_path, name, body, constants))
    assert made.full.tensors != made.verify.tensors
    written = write_initial_cuda(made)
    assert isinstance(written, InitialKernel), written
    result = await verified(device, made, written.source)
    assert result.outcome is Outcome.PASSED, result.reason

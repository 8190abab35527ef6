"""The k-th of long rows is found digit by digit, by PyTorch's rules for equals and no numbers."""

from __future__ import annotations

from pathlib import Path

from builtin_support import reference, written_and_verified

from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.writer import InitialKernel, write_initial_cuda

MODEL = """\
class Model(nn.Module):
    def forward(self, x, whole, exact):
        # Whose place is unlike all others': each element of x is.
        middle, place = x.median(1)
        coarse = (x * 2).round() * 0.0  # 0 and -0 are equal.
        gaps = torch.where(x[:2] > 3.5, torch.nan, x[:2])
        holes = torch.where(x > 3.0, torch.nan, x)
        return (torch.median(x), middle, place, *x.kthvalue(4700, 1), x.mT.median(0)[0],
                x.reshape(1, 3, 5000).median(-1, keepdim=True)[0], coarse.median(1)[0],
                x.half().median(1)[0], x.bfloat16().kthvalue(9, 1)[0],
                torch.median(whole), whole.kthvalue(17, 1)[0], whole.to(torch.int16).median(1)[0],
                (whole % 5).to(torch.uint8).median(1)[0], (whole << 40).median(1)[0],
                exact.median(1)[0], *exact.kthvalue(1, 1), x.log().nan_to_num(9).median(1)[0],
                gaps.median(1)[0].nan_to_num(77.0), torch.median(holes).nan_to_num(77.0),
                holes.kthvalue(2500, 1)[0], holes.kthvalue(5000, 1)[0].nan_to_num(77.0))


def get_inputs():
    return [torch.randn(3, 5000), torch.randint(-99, 99, (3, 5000)),
            torch.randn(3, 5000, dtype=torch.float64)]
"""


async def test_ranks_of_long_rows_are_what_pytorch_finds(tmp_path: Path) -> None:
    made = await load_task(reference(tmp_path, "ranks", MODEL, ""))
    written = write_initial_cuda(made)
    assert isinstance(written, InitialKernel), written
    assert "__shared__ int counted" in written.source
    await written_and_verified(made)

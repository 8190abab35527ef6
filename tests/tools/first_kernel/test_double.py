"""What forward() widens to double precision is computed in it by a first kernel too."""

from __future__ import annotations

from pathlib import Path

from builtin_support import reference, written_and_verified

from kernelblaster.harness.task.loading import load_task


async def test_what_forward_widens_to_double_precision_is_computed_in_it(tmp_path: Path) -> None:
    model = """\
class Model(nn.Module):
    def forward(self, x, places):
        near_one = x.double().mul(1e-12).add(1)
        own = torch.zeros(70, dtype=torch.float64, device=x.device)
        return ((near_one.kthvalue(2500, 1)[0] - 1).mul(1e12), near_one.sum(1) - 5000,
                own.index_add(0, places, x[0].double() * 1e-9 + 1.0),
                (x[0].double()[:70] + 1e9).index_add(0, places, x[1].double()) - 1e9,
                x.double().mean(1), x.double().sum(0).float(), x.double().softmax(1),
                (near_one[:, :9] - 1).mul(1e12).float(), x.to(torch.float64).cumsum(1).float())


def get_inputs():
    return [torch.randn(3, 5000), torch.randint(0, 70, (5000,))]
"""
    await written_and_verified(await load_task(reference(tmp_path, "wide", model, "")))

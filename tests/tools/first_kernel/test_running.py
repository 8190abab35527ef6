"""Norms of batches change the running mean and variance that they keep, for all who read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from builtin_support import node, ref, reference, task, written_and_verified

from kernelblaster.harness.records.programs import Program
from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.program.calls import names_of
from kernelblaster.tools.first_kernel.program.running import with_running

READ_LATER = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.batch = nn.BatchNorm2d(C, momentum=0.3)
        self.alone = nn.InstanceNorm2d(C, track_running_stats=True)
        self.unread = nn.BatchNorm2d(C)
        self.fixed = nn.BatchNorm2d(C).eval()

    def forward(self, x):
        before = self.batch.running_mean.clone()
        view = self.batch.running_var[1:]
        y = self.batch(x)
        z = self.alone(x * 2)
        return (y.relu() - self.batch.running_mean[None, :, None, None], before, view * 2, z,
                self.alone.running_mean, self.alone.running_var.clone(), self.unread(x),
                self.fixed(x), self.fixed.running_var + 1)


def get_inputs():
    return [torch.randn(N, C, H, H)]
"""
UNREAD = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.batch_norm = nn.BatchNorm1d(C)

    def forward(self, x):
        self.batch_norm(x)
        return self.batch_norm.running_var.sqrt(), self.batch_norm.running_mean


def get_inputs():
    return [torch.randn(N, C)]
"""


@pytest.mark.parametrize(
    ("body", "constants"),
    [
        (READ_LATER, "N, C, H = 64, 6, 20"),
        (UNREAD, "N, C = 512, 256"),
        (UNREAD.replace("1d(C)", "1d(C, momentum=None)"), "N, C = 512, 256"),
    ],
    ids=["read later", "read alone", "averaged over all calls"],
)
async def test_running_buffers_are_read_as_the_norm_leaves_them(
    tmp_path: Path, body: str, constants: str
) -> None:
    made = await load_task(reference(tmp_path, "running", body, constants))
    await written_and_verified(made)


@pytest.mark.parametrize(("training", "more"), [(True, 4), (False, 0)])
def test_only_a_norm_in_training_changes_them(training: bool, more: int) -> None:
    args = [ref("x"), None, None, ref("m"), ref("v"), training, 0.1, 1e-5, False]
    norm = node("norm", "aten.batch_norm.default", args, (64, 32))
    program = Program(nodes=(norm,), outputs=("norm",))
    assert len(with_running(program, ()).nodes) == 1 + more
    shapes = {"x": ((64, 32), (8, 32)), "m": ((32,), (32,)), "v": ((32,), (32,))}
    made = task("norm", shapes, [norm], {"norm": ((64, 32), (8, 32))})
    assert [call.name for call in names_of(made)] == ["norm"]

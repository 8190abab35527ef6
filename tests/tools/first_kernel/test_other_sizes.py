"""First kernels at sizes they were not written for: what is a size and what is a number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from builtin_support import verified
from often_or_seldom import every

from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.loading import load_task_now
from kernelblaster.harness.task.unseen import told_apart_now, unseen_tasks_now
from kernelblaster.tools.first_kernel.writer import (
    InitialKernel,
    write_for_all_sizes,
    write_initial_cuda,
)

CONVOLUTION = """\
import torch
import torch.nn as nn

batch_size, in_channels, out_channels, height, width, kernel_size = 128, 3, 16, 128, 128, 3


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.convolution = nn.Conv2d(in_channels, out_channels, kernel_size)

    def forward(self, x):
        return self.convolution(x) / 3


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
"""
"""128 pictures of 128 x 128, and 3 channels, filtered by 3 x 3: only the small ones stay."""

NORM = """\
import torch
import torch.nn as nn

batch_size, groups, channels, length = 4096, 3, 12, 96


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.norm(x).amax(2)


def get_inputs():
    return [torch.randn(batch_size, channels, length)]
"""
POOLED = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size, in_channels, out_channels, depth, height, width = 128, 3, 16, 16, 32, 32


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.convolution = nn.Conv3d(in_channels, out_channels, 3)

    def forward(self, x):
        return F.max_pool3d(F.max_pool3d(self.convolution(x), 2), 2)


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
"""
"""15 and 10 after the first pooling: five times what the depth comes to, too, in two variants."""

PLAIN = """\
import torch
import torch.nn as nn

rows, columns = 4096, 4000


class Model(nn.Module):
    def forward(self, x):
        return x.softmax(1)


def get_inputs():
    return [torch.randn(rows, columns)]
"""

ROUNDED = """\
import torch
import torch.nn as nn

batch_size, height, first, second, third = 64, 64, 56, 40, 24


def rounded(channels, to=16):
    return max(to, int(channels + to / 2) // to * to)


class Model(nn.Module):
    def __init__(self, *channels):
        super().__init__()
        widths = [3, *map(rounded, channels)]
        self.steps = nn.Sequential(
            *(nn.Conv2d(before, after, 1) for before, after in zip(widths, widths[1:]))
        )

    def forward(self, x):
        return self.steps(x) / 24


def get_inputs():
    return [torch.rand(batch_size, 3, height, height)]


def get_init_inputs():
    return [first, second, third]
"""
"""64, 48 and 32 channels: each variant leaves another of them as it is."""

GHOSTS = """\
import torch
import torch.nn as nn

batch_size, features, clusters, ghosts = 4096, 1024, 18, 10


class Model(nn.Module):
    def __init__(self, features, clusters, ghosts):
        super().__init__()
        self.clusters = clusters
        self.centres = nn.Parameter(torch.randn(features, clusters + ghosts))

    def forward(self, x):
        assigned = torch.matmul(x, self.centres).softmax(1)
        return assigned[:, : self.clusters] - assigned[:, self.clusters :].sum(1, keepdim=True)


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return [features, clusters, ghosts]
"""
"""28 columns are two squares of 16, as 18 are: a number of squares is none of the task."""

PYRAMID = """\
import torch
import torch.nn as nn

batch_size, height, first, second, third = 12, 64, 32, 16, 8


class Model(nn.Module):
    def __init__(self, first, second, third):
        super().__init__()
        self.steps = nn.Sequential(
            nn.Conv2d(3, first, 3, padding=1),
            nn.Conv2d(first, second, 3, stride=2, padding=1),
            nn.MaxPool2d(2),
            nn.Conv2d(second, third, 3, stride=2, padding=1),
            nn.Conv2d(third, second, 1),
        )

    def forward(self, x):
        return self.steps(x).amax(3)


def get_inputs():
    return [torch.rand(batch_size, 3, height, height)]


def get_init_inputs():
    return [first, second, third]
"""


def loaded(folder: Path, text: str) -> Task:
    path = folder / "task.py"
    path.write_text(text)
    return load_task_now(path)


def written(task: Task, apart: Sequence[Task] = ()) -> str:
    made = write_for_all_sizes(task, apart) if apart else write_initial_cuda(task)
    assert isinstance(made, InitialKernel), made
    return made.source


@pytest.mark.parametrize("text", every(3, [CONVOLUTION, NORM, POOLED]))
async def test_told_apart_a_kernel_holds_at_unseen_sizes(tmp_path: Path, text: str) -> None:
    task = loaded(tmp_path, text)
    apart = told_apart_now(task)
    assert apart and all(each.full == task.full for each in apart)
    source, device = written(task, apart), SimulatedDevice("H100")
    unseen = unseen_tasks_now(task, 2, 0, measured=False)
    assert len(unseen) == 2
    for each in (task, *unseen):
        stage = await verified(device, each, source)
        assert stage.outcome is Outcome.PASSED, stage.reason
    # The two variants alone take what stays for numbers: at some other size it fails.
    plain = written(task)
    assert (await verified(device, task, plain)).outcome is Outcome.PASSED
    for each in unseen:
        if (await verified(device, each, plain)).outcome is not Outcome.PASSED:
            return
    pytest.fail("what two variants do not tell apart holds at all sizes")


@pytest.mark.parametrize(
    "text, written_for, other",
    every(3, [
        (ROUNDED, "64, 64, 56, 40, 24", "2, 9, 90, 3, 50"),
        (GHOSTS, "4096, 1024, 18, 10", "96, 64, 9, 5"),
        (ROUNDED, "64, 64, 56, 40, 24", "3, 13, 7, 70, 9"),
        (PYRAMID, "12, 64, 32, 16, 8", "3, 11, 2, 9, 150"),
        (GHOSTS, "4096, 1024, 18, 10", "64, 128, 60, 12"),
        (PYRAMID, "12, 64, 32, 16, 8", "2, 35, 3, 40, 7"),
    ]),
)  # fmt: skip
async def test_told_apart_a_kernel_holds_at_sizes_far_from_its_own(
    tmp_path: Path, text: str, written_for: str, other: str
) -> None:
    task = loaded(tmp_path, text)
    source, device = written(task, told_apart_now(task)), SimulatedDevice("H100")
    assert written_for in text
    for each in (task, loaded(tmp_path, text.replace(written_for, other))):
        stage = await verified(device, each, source)
        assert stage.outcome is Outcome.PASSED, stage.reason


def test_sizes_that_are_one_in_full_but_not_when_verified_go_apart(tmp_path: Path) -> None:
    task = loaded(tmp_path, CONVOLUTION.replace("128, 3, 16,", "128, 8, 64,"))
    small = task.verify.dimensions
    assert task.full.dimensions["batch_size"] == task.full.dimensions["height"]
    assert small["batch_size"] != small["height"]
    apart = told_apart_now(task)
    for sizes in (each.verify.dimensions for each in apart):
        assert sizes["height"] == sizes["width"] != sizes["batch_size"]
        assert sizes["kernel_size"] == 3 != sizes["in_channels"]
    source = written(task, apart)
    assert "/ 3.0f" in source and re.search(r"ky_size = 3;", source)


def test_where_all_sizes_differ_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = loaded(tmp_path, PLAIN)
    monkeypatch.setattr("kernelblaster.harness.task.unseen.run_reference", None)
    assert told_apart_now(task) == ()

"""Products in squares that are numbered along the grid: recognised with how many there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.loading import load_task_now
from kernelblaster.tools.first_kernel.writer import InitialKernel, write_initial_cuda
from kernelblaster.tools.rewriting.kernels.product_kernel import BATCH, product_kernels
from kernelblaster.tools.rewriting.records import NotRecognised

TASK = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.bmm(x, y)


def get_inputs():
    return [torch.randn(5, 37, 20), torch.randn(5, 20, 45)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path: Path = tmp_path_factory.mktemp("products") / "batched.py"
    path.write_text(TASK)
    return load_task_now(path)


@pytest.fixture(scope="module")
def first(task: Task) -> str:
    written = write_initial_cuda(task)
    assert isinstance(written, InitialKernel)
    return written.source


def test_a_batch_is_the_grids_third_axis(first: str, task: Task) -> None:
    (found,) = product_kernels(first, task)
    assert (found.body.row, found.body.column, found.body.index) == ("b", "c", "r")
    assert BATCH in found.body.left and BATCH in found.body.right
    assert found.body.before == (f"const int a = {BATCH};",)
    count = found.constants.pair(found.body.batches)
    assert count is not None and count.full == 5


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("threadIdx.x / 16;", "threadIdx.x / 8;"),
        ("b >= b_size || c >= c_size", "b >= b_size"),
        ("% tiles_of_rows * 16", "% tiles_of_rows * 32"),
        ("(b_size + 15) / 16", "(b_size + 16) / 16"),
        ("int tile = blockIdx.x", "int tile = blockIdx.y"),
    ],
)
def test_another_place_is_not_taken_for_it(
    first: str, task: Task, before: str, after: str
) -> None:
    assert before in first
    with pytest.raises(NotRecognised):
        product_kernels(first.replace(before, after), task)


def test_more_products_than_a_grid_has_blocks_along_it_are_left_alone(
    first: str, task: Task
) -> None:
    grid = first[first.index("<<<") + 3 : first.index(", 256, 0")]
    with pytest.raises(NotRecognised, match="more products than"):
        product_kernels(first.replace(f"<<<{grid},", f"<<<{grid} * 65536,"), task)

"""Sums of products over nested loops: what is recognised, and where a thread has more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.loading import load_task_now
from kernelblaster.tools.rewriting.kernels.sum_kernel import sum_kernels
from kernelblaster.tools.rewriting.kernels.sum_writer import written
from kernelblaster.tools.rewriting.records import NotRecognised

TASK = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 6, 3)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 4, 10, 12)]


def get_init_inputs():
    return []
"""
KERNEL = """\
#include "task.cuh"

// By hand.
__global__ void conv(const float* x, const float* w, const float* b, float* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 2 * 6 * 8 * 10) return;
    const int column = i % 10;
    const int row = (i / 10) % 8;
    const int m = (i / (8 * 10)) % 6;
    const int n = i / (6 * 8 * 10);
    float total = 0.0f;
    for (int c = 0; c < 4; ++c) {
        for (int r = 0; r < 3; ++r) {
            #pragma unroll
            for (int s = 0; s < 3; ++s) {
                total += x[((n * 4 + c) * 10 + row + r) * 12 + column + s]
                    * w[((m * 4 + c) * 3 + r) * 3 + s];
            }
        }
    }
    out[i] = total + b[m];
}

extern "C" void launch(
    float* out0, const float* x, const float* conv_weight, const float* conv_bias, void* workspace,
    cudaStream_t stream) {
    conv<<<(960 + 127) / 128, 128, 0, stream>>>(x, conv_weight, conv_bias, out0);
}
"""
REFUSED = {
    "both factors of one channel": ("n * 4 + c", "n * 4 + m", "no axis along which one is used"),
    "neither moves": ("column + s]", "s]", "read by neighbouring threads"),
    "starts elsewhere": ("total = 0.0f", "total = b[m]", "set before the sum"),
    "in double": ("float total = 0.0f", "double total = 0.0", "total is set before the sum"),
    "loops of its own length": ("r < 3", "r < row + n", "no axis along which one is used"),
    "the index itself": ("+ column + s]", "+ column + s + 0 * i]", "the thread's index itself"),
    "leaves behind": ("    out[i] =", "    if (total < 0.0f) return;\n    out[i] =", "leaves"),
    "no guard": ("    if (i >= 2 * 6 * 8 * 10) return;\n", "", "into all of its axes"),
    "a guard of fewer": ("i >= 2 * 6 * 8 * 10", "i >= 2 * 6 * 8", "into all of its axes"),
    "an axis left out": ("i / (6 * 8 * 10)", "i / (8 * 10)", "taken apart in another way"),
    "a square": ("total +=", "total -=", "do not add a product"),
    "two sums": ("    out[i]", "    for (int k = 0; k < 2; ++k) total += b[k];\n out[i]", "nest"),
    "stored on the way": ("total += x", "out[i] = total;\ntotal += x", "do more than add"),
    "reads under a condition of one result": (
        "total += x",
        "if (row + r > 9) continue;\nconst float held = b[c];\ntotal += held + x",
        "under a condition of one result|do not add a product",
    ),
}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path: Path = tmp_path_factory.mktemp("sums") / "conv.py"
    path.write_text(TASK)
    return load_task_now(path)


def blocked(source: str, task: Task) -> str:
    (found,) = sum_kernels(source, task)
    return written(found, 4, 2)


def test_a_thread_takes_neighbouring_rows_and_several_channels(task: Task) -> None:
    text = blocked(KERNEL, task)
    assert "constexpr int PIXELS = 4;\nconstexpr int CHANNELS = 2;\n// By hand." in text
    assert "const int first_row = thread / 10 % row_parts * PIXELS;" in text
    assert "const int m = first_m + m_ < 6 ? first_m + m_ : 6 - 1;" in text
    assert "const int i = ((n * 6 + m) * 8 + row) * 10 + column;" in text
    assert text.count("#pragma unroll\n            for (int s = 0;") == 1, "the author's stays"
    assert "2 * ((6 + CHANNELS - 1) / CHANNELS) * ((8 + PIXELS - 1) / PIXELS) * 10" in text


def test_where_each_tap_is_tested_it_takes_samples(task: Task) -> None:
    tested = KERNEL.replace("total += x", "if (row + r > 9) continue;\n    total += x")
    text = blocked(tested, task)
    assert "if (!(row + r > 9)) {" in text
    assert "const int first_n = thread / (m_parts * 8 * 10) * PIXELS;" in text
    assert "first_row" not in text


def test_where_loops_are_of_the_rows_own_length_it_takes_samples(task: Task) -> None:
    text = blocked(KERNEL.replace("r < 3", "r < row"), task)
    assert "const int first_n" in text and "first_row" not in text


def test_of_one_sample_it_takes_rows_and_tests_each(task: Task) -> None:
    tested = KERNEL.replace("total += x", "if (row + r > 9) continue;\n    total += x")
    text = blocked(tested.replace("2 * 6 * 8 * 10", "1 * 6 * 8 * 10"), task)
    inner = text[text.index("const int row = first_row") :]
    assert inner.index("if (!(row + r > 9)) {") < inner.index("const float value")


def test_what_is_written_is_of_another_kind(task: Task) -> None:
    with pytest.raises(NotRecognised):
        sum_kernels(blocked(KERNEL, task), task)


@pytest.mark.parametrize("change", REFUSED.values(), ids=list(REFUSED))
def test_what_is_no_such_sum_is_refused_with_the_reason(
    task: Task, change: tuple[str, str, str]
) -> None:
    before, after, reason = change
    changed = KERNEL.replace(before, after)
    assert changed != KERNEL
    with pytest.raises(NotRecognised, match=reason):
        blocked(changed, task)

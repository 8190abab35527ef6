"""Answers with one thing missing: which tasks accept them, and that the task then says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernelblaster.harness.task.cases import prepare_cases, read_weak_to
from kernelblaster.harness.task.loading import load_task

TASK = """
import torch
import torch.nn as nn

ROWS = 64
COLUMNS = 48


class Model(nn.Module):
    def forward(self, x):
        {body}


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]
"""


@pytest.mark.parametrize(
    ("body", "weak", "firm"),
    [
        ("return torch.relu(x * 2.0) + 1.0", [], ["mul", "relu", "add", "half precision"]),
        # An epsilon is beyond any tolerance: no kernel can be told to have left it out.
        ("return x / torch.sqrt(x.pow(2).mean(1, keepdim=True) + 1e-7)", ["add"], ["sqrt", "div"]),
        # What changes nothing is no weakness.
        ("return torch.relu(torch.abs(x)).contiguous()", [], ["relu", "abs", "contiguous"]),
        ("return torch.tanh(x * 1e-3) * 1e-3 + x.sign()", ["tanh (operation 2 of forward)"], []),
    ],
)
def test_what_a_task_cannot_tell_is_told(
    tmp_path: Path, body: str, weak: list[str], firm: list[str]
) -> None:
    path = tmp_path / "task.py"
    path.write_text(TASK.replace("{body}", body))
    task = asyncio.run(load_task(path))
    said = read_weak_to(asyncio.run(prepare_cases(task)))
    assert all(name in said for name in weak), said
    assert not any(name in said for name in firm), said
    if not weak:
        assert said == ""

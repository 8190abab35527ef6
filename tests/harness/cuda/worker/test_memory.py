"""How much memory a task's cases take at most: those of the largest tasks must fit on a GPU."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernelblaster.harness.cuda.worker.task_context import TaskContext
from kernelblaster.harness.task.loading import load_task

TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return {answer}


def get_inputs():
    return [torch.rand(2, 32768)]
"""


class Memory(TorchDispatchMode):  # type: ignore[misc]
    """Notes the most bytes that tensors held at once."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        answer = function(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, kwargs, answer)):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self._alive[storage.data_ptr()] = (StorageWeakRef(storage), storage.nbytes())
        self._alive = {at: each for at, each in self._alive.items() if not each[0].expired()}
        self.most = max(self.most, sum(size for _, size in self._alive.values()))
        return answer


@pytest.mark.parametrize(
    "answer", ["x.softmax(1)", "x / (x.square().mean(1, keepdim=True) + 1).sqrt()"]
)
def test_cases_take_at_most_seven_times_the_tensors(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "task.py"
    path.write_text(TASK.format(answer=answer))
    task = asyncio.run(load_task(path))
    # As on a GPU, where nothing is added in order, and samples are small beside tensors.
    monkeypatch.setattr("kernelblaster.harness.reference.precision.rounding.IN_ORDER", {})
    monkeypatch.setattr("kernelblaster.harness.reference.cases.proof.SAMPLE", 1 << 10)
    monkeypatch.setattr("kernelblaster.harness.judge.tensor_comparison.CHUNK", 1 << 12)
    context = TaskContext(task, "cpu")
    with Memory() as memory:
        context.plans()
    assert memory.most <= 7 * sum(each.nbytes for each in task.full.tensors)

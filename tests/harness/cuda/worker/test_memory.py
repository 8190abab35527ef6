"""How much memory a task's cases take at most: those of the largest tasks must fit on a GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernelblaster.harness.cuda.worker.measure_run import rehearse_measuring
from kernelblaster.harness.cuda.worker.task_context import TaskContext
from kernelblaster.harness.cuda.worker.verify_run import rehearse_verifying
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.loading import load_task
from kernelblaster.tests.support.cuda_support import HostMachine

TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return {answer}


def get_inputs():
    return [torch.rand(2, 32768)]
"""


class Memory(TorchDispatchMode):  # type: ignore[misc]
    """Notes the most bytes that tensors held at once; with a limit no more are to be had."""

    def __init__(self, limit: int = 0) -> None:
        super().__init__()
        self.most = 0
        self._limit = limit
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    @property
    def held(self) -> int:
        """Bytes that tensors hold now."""
        self._alive = {at: each for at, each in self._alive.items() if not each[0].expired()}
        return sum(size for _, size in self._alive.values())

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        answer = function(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, kwargs, answer)):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self._alive[storage.data_ptr()] = (StorageWeakRef(storage), storage.nbytes())
        held = self.held + _held_on_a_gpu(function, args)
        if 0 < self._limit < held:
            answer = storage = tensor = None  # The error holds this frame.
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.most = max(self.most, held)
        return answer


def _held_on_a_gpu(function: Any, args: Any) -> int:
    """Return what an operation takes on a GPU beside its answer, and not here: whole numbers and
    flags are counted and added up as a copy of eight bytes each."""
    aten = torch.ops.aten
    if function.overloadpacket is aten.count_nonzero:
        return 9 * int(args[0].numel())
    if function.overloadpacket in (aten.sum, aten.prod) and not args[0].is_floating_point():
        return 8 * int(args[0].numel())
    return 0


class SmallMachine(HostMachine):
    """A GPU with so much memory."""

    def __init__(self, memory: Memory, limit: int) -> None:
        super().__init__()
        self._memory, self._limit = memory, limit

    def free_bytes(self) -> int:
        return self._limit - self._memory.held


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Task]:
    """Load a task that is as on a GPU, where nothing is added in order, and samples, pieces and
    guards are small beside tensors."""
    monkeypatch.setattr("kernelblaster.harness.reference.precision.rounding.IN_ORDER", {})
    monkeypatch.setattr("kernelblaster.harness.reference.cases.proof.SAMPLE", 1 << 10)
    monkeypatch.setattr("kernelblaster.harness.judge.tensor_comparison.CHUNK", 1 << 12)
    monkeypatch.setattr("kernelblaster.harness.cuda.launching.buffers.GUARD_BYTES", 1 << 10)

    def load(text: str) -> Task:
        path = tmp_path / "task.py"
        path.write_text(text)
        return asyncio.run(load_task(path))

    return load


@pytest.mark.parametrize(
    "answer", ["x.softmax(1)", "x / (x.square().mean(1, keepdim=True) + 1).sqrt()"]
)
def test_cases_take_at_most_seven_times_the_tensors(
    answer: str, large: Callable[[str], Task]
) -> None:
    task = large(TASK.format(answer=answer))
    context = TaskContext(task, "cpu")
    with Memory() as memory:
        context.plans()
    assert memory.most <= 7 * sum(each.nbytes for each in task.full.tensors)


@pytest.mark.parametrize("seconds", [-1.0, 0.5], ids=["slow", "quick"])
@pytest.mark.parametrize(
    ("shape", "answer"),
    [
        ((64, 8191), "x * torch.sigmoid(x)"),
        ((64, 8191), "x / x.abs().mean(1, keepdim=True)"),
        ((8, 64, 32, 32), "x / torch.norm(x)"),
        ((16, 4, 128, 128), "torch.nn.functional.avg_pool2d(x, 11)"),
        ((64, 8191), "x.amax(1)"),
    ],
)
def test_a_task_of_a_fifth_of_the_memory_is_verified_and_timed(
    shape: tuple[int, ...],
    answer: str,
    seconds: float,
    large: Callable[[str], Task],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "kernelblaster.harness.cuda.worker.task_context.EXACT_SECONDS", seconds
    )
    task = large(TASK.format(answer=answer).replace("(2, 32768)", str(shape)))
    limit = int(4.75 * sum(each.nbytes for each in task.full.tensors))
    context = TaskContext(task, "cpu", double_is_dispensable=True)
    with Memory(limit) as memory:
        machine = SmallMachine(memory, limit)
        context.plans()
        context.constant_plans()
        rehearse_verifying(machine, context)
        rehearse_measuring(machine, context)
    assert 0 < memory.most <= limit


def test_long_sums_have_their_room_also_where_double_precision_comes_in_pieces(
    large: Callable[[str], Task],
) -> None:
    """A kernel that adds 70,000 terms one after the other is right on a small GPU too."""
    text = TASK.format(answer="x / x.abs().mean(1, keepdim=True)").replace(
        "(2, 32768)", "(16, 70000)"
    )
    task = large(text)
    plenty = TaskContext(task, "cpu", double_is_dispensable=True)
    wanted = [plan.tolerances[0] for plan in plenty.plans()]
    limit = int(4.1 * sum(each.nbytes for each in task.full.tensors))
    short = TaskContext(task, "cpu", double_is_dispensable=True)
    with Memory(limit):
        found = [plan.tolerances[0] for plan in short.plans()]
    assert short.reference.double_comes_in_pieces and not plenty.reference.double_comes_in_pieces
    for one, other in zip(found, wanted, strict=True):
        assert one and other
        assert one.relative == pytest.approx(other.relative, rel=0.1)
        assert one.absolute == pytest.approx(other.absolute, rel=0.1)
    assert max(each.relative for each in wanted if each) > 2e-4


def test_a_task_that_counts_its_rows_gets_no_room_for_error_where_memory_is_short(
    large: Callable[[str], Task],
) -> None:
    """In pieces it would answer otherwise: as if PyTorch were a hundredth off."""
    answer = "2 * x + 0.01 * torch.linspace(0, 1, len(x))[:, None]"
    task = large(TASK.format(answer=answer).replace("(2, 32768)", "(64, 8191)"))
    limit = int(3.2 * sum(each.nbytes for each in task.full.tensors))
    context = TaskContext(task, "cpu", double_is_dispensable=True)
    with Memory(limit):
        plans = context.plans()
    assert context.reference.lacked_memory_for_double
    assert not context.reference.double_comes_in_pieces
    assert all(plan.tolerances[0] and plan.tolerances[0].relative == 1e-4 for plan in plans)
    usual = plans[0].tolerances[0]
    assert usual is not None and usual.absolute <= 3e-4

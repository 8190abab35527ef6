"""Evaluate one file alone, as a person would use the harness without any agent."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from ..harness.devices import open_device
from ..harness.records import Evaluation
from ..harness.tasks import load_task
from ..memory.run_store import RunStore
from ..nodes.write_initial_cuda import read_source
from ..tools.evaluation import Evaluator


async def evaluate_file(
    kernel: Path, task: Path, device: str, gpu: str, dimensions: dict[str, int]
) -> Evaluation:
    """Compile, verify, profile and time one CUDA source for one task.

    Raises:
        UserError: a file, the device or the GPU cannot be used.
    """
    source = await asyncio.to_thread(read_source, kernel)
    opened = open_device(device, gpu)
    loaded = await load_task(task, dimensions)
    with tempfile.TemporaryDirectory(prefix="kernelblaster-") as scratch:
        with RunStore(Path(scratch) / "run.sqlite") as store:
            return await Evaluator(opened, store).evaluate(loaded, source)

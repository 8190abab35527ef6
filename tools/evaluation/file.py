"""Evaluate one file alone, as a person would use the harness without any agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ...harness.devices.again import Confirming, profile_again, verify_again
from ...harness.devices.registry import open_device
from ...harness.errors import UserError
from ...harness.files import read_source
from ...harness.process.scratch import scratch_folder
from ...harness.records import Evaluation, Outcome, StageResult
from ...harness.task.loading import load_task
from ...memory.run.run_store import RunStore
from .evaluator import Evaluator

NO_KERNEL = frozenset({"missing_launch", "wrong_signature"})
"""What makes a file no kernel for a task at all."""


async def evaluate_file(
    kernel: Path,
    task: Path,
    device: str,
    gpu: str,
    dimensions: dict[str, int],
    confirm: bool = False,
) -> Evaluation:
    """Compile, verify, profile and time one CUDA source for one task.

    Args:
        confirm: also verify what passed once more in a fresh process and, on a GPU, under Compute
            Sanitizer; on the simulated device also run all blocks at full dimensions where that is
            affordable, as a run does with its winner.

    Raises:
        UserError: a file, the device or the GPU cannot be used, or the file defines no `launch`
            for this task.
    """
    source = await asyncio.to_thread(read_source, kernel)
    opened = open_device(device, gpu)
    loaded = await load_task(task, dimensions)
    with scratch_folder("evaluate") as scratch:
        with RunStore(scratch / "run.sqlite") as store:
            evaluation = await Evaluator(opened, store).evaluate(loaded, source)
    if any(found.kind in NO_KERNEL for found in evaluation.diagnostics):
        raise UserError(
            f"{kernel}: {evaluation.reason}; the signature it must have: "
            f"kernelblaster task show {task}"
        )
    if confirm and evaluation.outcome is Outcome.PASSED:
        again = await verify_again(opened, loaded, source)
        if again.outcome is Outcome.PASSED and not isinstance(opened, Confirming):
            again = (await profile_again(opened, loaded, source)).stage
        evaluation = _with(evaluation, again)
    return evaluation


def _with(evaluation: Evaluation, again: StageResult) -> Evaluation:
    """Return an evaluation after a second verdict: what does not pass again has no time."""
    update: dict[str, object] = {"facts": evaluation.facts | again.facts}
    if again.outcome is not Outcome.PASSED:
        update |= {"outcome": again.outcome, "reason": again.reason,
                   "diagnostics": again.diagnostics, "timing": None, "profile": None}  # fmt: skip
    return Evaluation.model_validate(evaluation.model_dump() | update)

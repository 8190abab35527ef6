"""Evaluate one file alone, as a person would use the harness without any agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ...harness.devices.gates import Passage, both_times, unconfirmed_because
from ...harness.devices.protocol import CONFIRM_SECONDS
from ...harness.devices.registry import open_device
from ...harness.errors import UserError, in_shell
from ...harness.files import read_source
from ...harness.process.scratch import scratch_folder
from ...harness.records.evaluations import Evaluation
from ...harness.records.outcomes import Outcome
from ...harness.records.readings import AS_WRITTEN, Reading
from ...harness.task.loading import Tell, load_task
from ...memory.run.run_store import RunStore
from ..solutions.first_kernel import as_launch, not_restated
from ..solutions.reading import NotRestated
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
    secret_seed: int | None = None,
    reading: Reading = AS_WRITTEN,
    tell: Tell | None = None,
    confirm_seconds: float = CONFIRM_SECONDS,
    reference_seconds: float | None = None,
) -> Evaluation:
    """Compile, verify, profile and time one CUDA source, or KernelBench solution, for one task.

    Args:
        confirm: also verify and time what passed once more, as a run does with its winner: in a
            fresh process and, on a GPU, under Compute Sanitizer; on the simulated device on other
            blocks, and on all of them where that is affordable. The fact `confirmed` holds both
            times, or `unconfirmed` why it does not hold.
        secret_seed: confirm on the cases that were drawn from this number, which is the fact
            `secret_seed` of an earlier confirmation; by default from one that nobody knows.
        reading: how the reference is read.
        tell: hears now and then that PyTorch is still at work.
        confirm_seconds: limit of a confirmation's slow checks at full dimensions.
        reference_seconds: how long PyTorch may take for the task's answers on the CPU.

    Raises:
        UserError: a file, the device or the GPU cannot be used, or the file defines no `launch`
            for this task.
    """
    source = await asyncio.to_thread(read_source, kernel)
    opened = open_device(device, gpu).confirming_for(confirm_seconds)
    loaded = await load_task(task, dimensions, reading, tell, reference_seconds)
    try:
        source = await asyncio.to_thread(as_launch, kernel, source, loaded)
    except NotRestated as obstacle:
        raise UserError(not_restated(str(kernel), obstacle, str(task))) from None
    with scratch_folder("evaluate") as scratch:
        with RunStore(scratch / "run.sqlite") as store:
            gates = Evaluator(opened, store)
            evaluation = await gates.evaluate(loaded, source)
            if (confirm or secret_seed is not None) and evaluation.timing is not None:
                again = await gates.confirm(loaded, source, secret_seed)
                evaluation = _after(evaluation, again)
    if any(found.kind in NO_KERNEL for found in evaluation.diagnostics):
        raise UserError(
            f"{kernel}: {evaluation.reason}; the signature it must have: "
            f"kernelblaster task show {in_shell(task)}"
        )
    return evaluation


def _after(evaluation: Evaluation, again: Passage) -> Evaluation:
    """Return an evaluation after its confirmation, whose verdict, facts and time are the last word.

    What does not pass again has no time.
    """
    assert evaluation.timing is not None
    reason = unconfirmed_because(evaluation.timing, again)
    last, passed = again.last, again.last.outcome is Outcome.PASSED
    told: dict[str, float | int | str] = {"unconfirmed": reason}
    if again.timing is not None and not reason:
        told = {"confirmed": both_times(evaluation.timing, again.timing)}
    return Evaluation.model_validate(
        evaluation.model_dump()
        | {
            "outcome": last.outcome,
            "reason": last.reason,
            "diagnostics": last.diagnostics,
            "facts": evaluation.facts | again.facts | told,
            "timing": again.timing if passed else None,
            "profile": again.measured.profile if again.measured and passed else None,
        }
    )

"""Runs the census' own kernels: each a candidate, checked against its task's reference."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

from census_programs import Outcome

from kernelblaster.harness.build.toolchain import Toolchain
from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.records.outcomes import Outcome as Verdict
from kernelblaster.harness.task.loading import load_task

HERE = Path(__file__).resolve().parent
_TASK = re.compile(r"^// task: (\w+)", re.MULTILINE)
_NO_REPORT = {Verdict.PASSED, Verdict.WRONG_ANSWER, Verdict.UNSUPPORTED, Verdict.COMPILE_ERROR}


def run_kernels(gpu: str, toolchain: Toolchain, only: str) -> Iterator[Outcome]:
    """Verify each kernel at the task's small dimensions, then profile it at the full ones."""
    device = SimulatedDevice(gpu, toolchain)
    for path in sorted((HERE / "census_kernels").glob("*.cu")):
        if only in path.stem:
            yield asyncio.run(_one(device, path))


async def _one(device: SimulatedDevice, path: Path) -> Outcome:
    source = path.read_text()
    named = _TASK.search(source)
    assert named, f"{path} names no task"
    outcome = Outcome(path.stem)
    task = await load_task(HERE / "census_tasks" / f"{named[1]}.py")
    compiled = await device.compile(task, source)
    if compiled.outcome is not Verdict.PASSED:
        outcome.note = compiled.reason
        return outcome
    outcome.compiled = True
    verified = await device.verify(task, source)
    outcome.right = verified.outcome is Verdict.PASSED
    outcome.ran = verified.outcome in (Verdict.PASSED, Verdict.WRONG_ANSWER)
    if verified.outcome is Verdict.UNSUPPORTED:
        outcome.refused = verified.reason
    elif not outcome.right:
        outcome.note = f"{verified.outcome}: {verified.reason}"
    outcome.reports = [
        {"kind": found.kind, "line": found.line, "detail": found.message}
        for found in verified.diagnostics
        if verified.outcome not in _NO_REPORT
    ]
    if outcome.right:
        measured = await device.profile(task, source)
        outcome.profile = (
            f"profile {measured.timing.microseconds:.1f} us"
            if measured.timing
            else f"no profile: {measured.stage.reason}"
        )
    return outcome

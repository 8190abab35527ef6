"""Do first kernels hold at sizes they were not written for?

    python benchmarks/kernelbench/first_kernels_elsewhere.py --kernelbench DIR [--tasks FILE]

Each problem's first kernel is written from its two variants alone (`two`) and with those that tell
sizes from numbers (`apart`), and evaluated by the simulated device as it was loaded and at
two sets of unseen sizes, as a winner is. A line a problem, then the totals.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from pathlib import Path

from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.kernelbench import kernelbench_files
from kernelblaster.harness.task.loading import load_task_now
from kernelblaster.harness.task.unseen import told_apart_now, unseen_tasks_now
from kernelblaster.tools.first_kernel.writer import (
    InitialKernel,
    write_for_all_sizes,
    write_initial_cuda,
)

UNSEEN = 2


async def verdict(device: SimulatedDevice, task: Task, source: str) -> str:
    """Return how a kernel of a task is judged: its outcome, from compiling to verifying."""
    compiled = await device.compile(task, source)
    if compiled.outcome is not Outcome.PASSED:
        return compiled.outcome.value
    return (await device.verify(task, source)).outcome.value


async def of_problem(path: Path, device: SimulatedDevice) -> dict[str, list[str]]:
    """Return the verdicts of both kernels: at home, then at each set of unseen sizes."""
    task = load_task_now(path)
    began = time.perf_counter()
    apart = told_apart_now(task)
    seconds = time.perf_counter() - began
    elsewhere = unseen_tasks_now(task, UNSEEN, 0, measured=False)
    found = {"took": [f"{seconds:.1f} s"]}
    sources: dict[str, str] = {}
    for name in ("two", "apart"):
        if name == "apart" and not apart:
            found[name] = ["nothing to tell apart"]
            continue
        written = (
            write_initial_cuda(task) if name == "two" else write_for_all_sizes(task, apart)
        )
        if not isinstance(written, InitialKernel):
            found[name] = [f"not written: {written.reason}"]
        elif written.source in sources.values():
            found[name] = ["the same"]
        else:
            sources[name] = written.source
            found[name] = [
                await verdict(device, each, written.source) for each in (task, *elsewhere)
            ]
    return found


def main() -> None:
    """Ask about each problem and print what was found."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--kernelbench", type=Path, required=True)
    arguments.add_argument("--tasks", type=Path, help="names as of a suite, with commas between")
    asked = arguments.parse_args()
    names = asked.tasks and asked.tasks.read_text(encoding="utf-8").strip().split(",")
    device = SimulatedDevice("H100")
    totals: Counter[str] = Counter()
    for path in kernelbench_files(asked.kernelbench, None, None):
        if names and f"{path.parent.name}_{path.stem}" not in names:
            continue
        try:
            found = asyncio.run(of_problem(path, device))
        except UserError as error:
            found = {"refused": [str(error)[:100]]}
        told = (f"{name}: {', '.join(verdicts)};" for name, verdicts in found.items())
        print(path.parent.name, path.stem[:40], *told, flush=True)
        for name, verdicts in found.items():
            for at, each in enumerate(verdicts):
                totals[f"{name} {'elsewhere' if at else 'at home'}: {each.split(':')[0]}"] += 1
    for name, number in sorted(totals.items()):
        print(f"{number:4d} {name}")


if __name__ == "__main__":
    main()

"""What an evaluation's parts cost at a task's real size on a GPU.

    python benchmarks/judge/real_size.py TASK.py [TASK.py ...] [--out FILE.json] [--confirm]
    python benchmarks/judge/real_size.py $(cat TASKS) --quick --out FILE.json

For each task, with its built-in first kernel (or KERNEL.cu, given as TASK.py=KERNEL.cu): seconds to
load it, of the first verification in a worker, of the first in another worker (what is kept of a
task helps there), of one in a warm worker; seconds to measure and to profile, with the number of
rounds and what was counted; with --confirm those of the confirmation and what of it ran. Last, what
a search pays for each further candidate: `known_seconds` from a source that nobody has seen to its
verdict and time, the task being known, and `known_profiled_seconds` with its profile. --quick
leaves out what stands between the first verification and that. A task that cannot be loaded,
written or evaluated is a line that says why. At the end, the medians over the tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from kernelblaster.harness.devices.cuda import CudaDevice
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.writer import InitialKernel, write_initial_cuda

FACTS = (
    "measure_seconds", "measure_parts", "profile_seconds", "profile_collection", "profile_counted",
    "profiler_unavailable", "rounds",
    "eager_us", "compile_us", "compile_failure", "compile_kept", "ratio_half_width", "input_sets",
    "sanitizer", "sanitizer_missing", "sanitizer_seconds",
)  # fmt: skip


def source_of(task: Task, kernel: str) -> str:
    """Return the kernel's text, or the built-in first kernel. Raises UserError."""
    if kernel:
        return Path(kernel).read_text()
    written = write_initial_cuda(task)
    if not isinstance(written, InitialKernel):
        raise UserError(f"no first kernel is written: {written}")
    return written.source


async def costs(
    device: CudaDevice, path: Path, kernel: str, confirm: bool, quick: bool
) -> dict[str, Any]:
    """Return the seconds of each part for one task."""
    found: dict[str, Any] = {"task": path.stem}
    began = time.monotonic()

    def lap(name: str) -> None:
        nonlocal began
        found[name] = round(time.monotonic() - began, 2)
        print(f"  {path.stem}: {name} {found[name]} s", file=sys.stderr, flush=True)
        began = time.monotonic()

    task = await load_task(path)
    lap("load")
    source = source_of(task, kernel)
    found["gigabytes"] = round(sum(spec.nbytes for spec in task.full.tensors) / 1e9, 2)
    compiled = await device.compile(task, source)
    lap("compile")
    again = () if quick else ("verify_other_worker", "verify_warm")
    for name in ("verify_first", *again):
        if name == "verify_other_worker":
            device.close()
            device.workers[0].hello()
            began = time.monotonic()
        verified = await device.verify(task, source)
        lap(name)
    found |= {"outcome": str(verified.outcome), "reason": verified.reason or compiled.reason}
    if verified.reason:
        return found
    measured = await device.profile(task, source)
    lap("profile_stage")
    found |= {"outcome": str(measured.stage.outcome), "reason": measured.stage.reason}
    facts = dict(measured.stage.facts)
    if measured.timing is not None:
        found["microseconds"] = measured.timing.microseconds
        if not quick:
            await device.profile(task, source)
            lap("profile_stage_again")
    if confirm:
        confirmed = await device.confirm(task, source, 1234567)
        lap("confirm")
        facts |= confirmed.facts
        found |= {"confirmed": str(confirmed.outcome), "confirm_reason": confirmed.reason}
    source += "\n// As good as another candidate.\n"
    began = time.monotonic()
    await device.compile(task, source)
    lap("known_compile")
    verified = await device.verify(task, source)
    lap("known_verify")
    profiled = (await device.profile(task, source)).stage.facts
    lap("known_profile_stage")
    if verified.reason or "measure_seconds" not in profiled:
        return found | {"outcome": str(verified.outcome), "reason": "failed when it was known"}
    found["known_parts"] = f"{verified.facts.get('verify_parts')}; {profiled.get('measure_parts')}"
    found["known_seconds"] = round(
        found["known_compile"] + found["known_verify"] + float(profiled["measure_seconds"]), 2
    )
    found["known_profiled_seconds"] = round(
        found["known_compile"] + found["known_verify"] + found["known_profile_stage"], 2
    )
    return found | {name: facts[name] for name in FACTS if name in facts}


async def run(tasks: list[str], out: Path | None, confirm: bool, quick: bool) -> None:
    """Evaluate each task; print and keep what is known after each."""
    device, rows = CudaDevice(), []
    for given in tasks:
        path, _, kernel = given.partition("=")
        try:
            found = await costs(device, Path(path), kernel, confirm, quick)
        except UserError as error:
            found = {"task": Path(path).stem, "failed": str(error)}
        rows.append(found)
        print(json.dumps(found), flush=True)
        if out:
            document = {"date": datetime.date.today().isoformat(),
                        "gpu": device.gpus[0].name, "rows": rows}  # fmt: skip
            out.write_text(json.dumps(document, indent=1) + "\n")
    for name in ("known_seconds", "known_profiled_seconds"):
        seconds = sorted(row[name] for row in rows if name in row)
        if seconds:
            print(f"{name}: {len(seconds)} tasks, median {statistics.median(seconds):.1f}, of 95 % "
                  f"at most {seconds[math.ceil(0.95 * len(seconds)) - 1]:.1f}")  # fmt: skip
    device.close()


def main() -> None:
    """Read the arguments and evaluate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tasks", nargs="+", help="TASK.py, or TASK.py=KERNEL.cu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--confirm", action="store_true")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    asyncio.run(run(given.tasks, given.out, given.confirm, given.quick))


if __name__ == "__main__":
    sys.exit(main())

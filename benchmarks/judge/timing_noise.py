"""Measure kernels against themselves on a GPU: the interval of the ratio must cover 1.

    python benchmarks/judge/timing_noise.py --kernels FOLDER [--rounds 20]

FOLDER holds kernels named as the examples: softmax.cu is compared with itself under
examples/softmax.py, again and again. Needs PyTorch, numpy, pydantic and nvcc; the package must be
importable as `kernelblaster`. Prints one JSON line a kernel, also to $OUT/timing_noise.jsonl where
OUT is set. Exits 1 where an interval misses 1 more often than one in ten times, or is wider than
1 % on a side.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from gpu_log import Log

from kernelblaster.harness.devices.cuda import CudaDevice
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.loading import load_task

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WIDEST = 0.01


async def measure_noise(
    device: CudaDevice, log: Log, task: Task, source: str, rounds: int
) -> None:
    """Compare a kernel with itself `rounds` times and write down what came of it."""
    covered, widths, found = 0, [], []
    began = time.monotonic()
    for _ in range(rounds):
        compared = await device.compare(task, source, source)
        if compared.ratio is None:
            log.expect(False, f"{task.name}: {compared.stage.reason}")
            break
        low, high = compared.ratio.interval
        covered += low <= 1 <= high
        widths.append(compared.ratio.half_width)
        found.append(
            [round(compared.ratio.ratio, 5), round(low, 5), round(high, 5), compared.ratio.rounds]
        )
    log.write(
        "noise", task=task.name, covered=covered, of=rounds, widest=max(widths, default=None),
        seconds=round(time.monotonic() - began, 2), ratios=found,
    )  # fmt: skip
    log.expect(covered >= rounds - rounds // 10, f"{task.name}: covered {covered} times")
    log.expect(max(widths, default=1) <= WIDEST, f"{task.name}: half-width")


async def main() -> int:
    """Measure every kernel of the folder that is an example's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernels", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    subjects = [
        (example, kernel)
        for example in sorted(EXAMPLES.glob("*.py"))
        if (kernel := given.kernels / f"{example.stem}.cu").is_file()
    ]
    if not subjects:
        raise UserError(f"{given.kernels} holds no kernel named as an example, softmax.cu or so")
    log, device = Log("timing_noise"), CudaDevice()
    try:
        hello = await asyncio.to_thread(device.workers[0].hello)
        log.write("device", identity=device.identity.model_dump(), hello=hello)
        for example, kernel in subjects:
            task = await load_task(example)
            await measure_noise(device, log, task, kernel.read_text(), given.rounds)
    finally:
        device.close()
    log.write("end", failures=log.failures)
    return 1 if log.failures else 0


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except UserError as error:
        sys.exit(f"error: {error}")

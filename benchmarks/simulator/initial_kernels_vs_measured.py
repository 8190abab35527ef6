"""Compare simulated with measured times of the examples' built-in initial kernels.

    python benchmarks/simulator/initial_kernels_vs_measured.py \
        benchmarks/results/optimize_on_gpu_h200.json

The file is what optimize_on_gpu.py wrote on a machine with the GPU: of each example the first
kernel's microseconds. None of these kernels had a part in choosing the time model's terms or
constants.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import math
import statistics
from pathlib import Path

from kernelblaster.harness.devices.registry import open_device
from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.writer import InitialKernel, write_initial_cuda

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def measured_times(path: Path) -> dict[str, float]:
    """Return the measured microseconds of each example's first kernel."""
    rows = json.loads(path.read_text())["rows"]
    return {row["task"]: row["initial_us"] for row in sorted(rows, key=lambda row: row["task"])}


async def compare(measured: dict[str, float], gpu: str) -> None:
    """Profile each kernel on the simulated device and print the table."""
    device = open_device("simulated", gpu)
    factors = []
    for name, truth in measured.items():
        task = await load_task(EXAMPLES / f"{name}.py")
        written = write_initial_cuda(task)
        assert isinstance(written, InitialKernel), name
        result = await device.profile(task, written.source)
        if result.timing is None or result.profile is None:
            print(f"{name:12s} measured {truth:8.1f} us  not simulated: {result.stage.reason}")
            continue
        estimate = result.timing.microseconds
        factors.append(math.exp(abs(math.log(estimate / truth))))
        print(
            f"{name:12s} measured {truth:8.1f} us  simulated {estimate:8.1f} us  "
            f"ratio {estimate / truth:.2f}  {result.profile.dominant.bottleneck}"
        )
    print(f"factor: median {statistics.median(factors):.3f}, worst {max(factors):.2f}")


def main() -> None:
    """Read the measured times and compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("measured", type=Path)
    parser.add_argument("--gpu", default="H200")
    arguments = parser.parse_args()
    print(f"date: {datetime.date.today().isoformat()}")
    print(f"python benchmarks/simulator/initial_kernels_vs_measured.py {arguments.measured.name}")
    asyncio.run(compare(measured_times(arguments.measured), arguments.gpu))


if __name__ == "__main__":
    main()

"""Kernels that a person wrote in a model's place, step by step, verified and timed beside PyTorch.

    python benchmarks/models/by_hand_times.py [--gpus 0] [--out FILE.json]

Each folder of by_hand/ holds a task and the kernels of one run with the simulated device, first to
last; what that run came to is told in benchmarks/results/by_hand_two_h200_notes.md. Needs a GPU;
torch.compile is timed too, and no counters are read.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import sys
from pathlib import Path
from typing import Any

from kernelblaster.harness.devices.cuda import CudaDevice
from kernelblaster.harness.task.loading import load_task

KERNELS = Path(__file__).resolve().with_name("by_hand")
FACTS = (
    "eager_us", "compile_us", "eager_host_us", "compile_host_us", "speedup", "speedup_low",
    "speedup_high", "rounds", "precision_ratio", "host_late",
)  # fmt: skip


async def timed(device: CudaDevice, folder: Path) -> list[dict[str, Any]]:
    """Return a row for each kernel of a folder."""
    task = await load_task(folder / f"{folder.name}.py")
    rows = []
    for kernel in sorted(folder.glob("*.cu")):
        source = kernel.read_text(encoding="utf-8")
        stage = await device.verify(task, source)
        row: dict[str, Any] = {"task": folder.name, "kernel": kernel.stem}
        facts = dict(stage.facts)
        if not stage.reason:
            measured = await device.profile(task, source)
            stage, facts = measured.stage, facts | measured.stage.facts
            if measured.timing is not None:
                row["microseconds"] = round(measured.timing.microseconds, 2)
        row |= {"outcome": str(stage.outcome), "reason": stage.reason}
        row |= {name: facts[name] for name in FACTS if name in facts}
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def main() -> int:
    """Time all, and write what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", default="0")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device = CudaDevice(tuple(map(int, given.gpus.split(","))), with_counters=False)
    folders = sorted(each for each in KERNELS.iterdir() if each.is_dir())
    rows = [row for folder in folders for row in asyncio.run(timed(device, folder))]
    if given.out:
        document = {"date": datetime.date.today().isoformat(), "gpu": device.gpus[0].name,
                    "rows": rows}  # fmt: skip
        given.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    device.close()
    return 0 if all(row["outcome"] == "passed" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

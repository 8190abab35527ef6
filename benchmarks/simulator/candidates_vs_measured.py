"""Rank correlation of simulated and measured times among the candidates of one task.

    python benchmarks/simulator/candidates_vs_measured.py run --device simulated --gpu H200 \
        --out SIM.json
    python benchmarks/simulator/candidates_vs_measured.py run --device cuda --out REAL.json
    python benchmarks/simulator/candidates_vs_measured.py compare SIM.json REAL.json

ground_truth/candidates holds, for each task, what an engineer would write on the way to a fast
kernel, steps that do not help among them. `run` compiles, verifies and profiles each on a device
and writes its time, or why it has none, after every candidate: a run that is cut off goes on where
it stopped. `compare` says how the two rank them: a search needs no more than that.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from kernelblaster.harness.devices.registry import open_device
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.task.loading import load_task

FOLDER = Path(__file__).resolve().parents[1] / "ground_truth/candidates"
PAIR = 1.1
"""Candidates whose measured times differ by this factor or more must come out in order."""


async def run(kind: str, gpu: str, out: Path, tasks: Sequence[str], seconds: float) -> None:
    """Evaluate every candidate that `out` does not have yet."""
    began = time.monotonic()
    found: dict[str, dict[str, object]] = json.loads(out.read_text()) if out.exists() else {}
    device = open_device(kind, gpu)
    try:
        for name in tasks:
            task = await load_task(FOLDER / name / "task.py")
            for path in sorted((FOLDER / name).glob("*.cu")):
                key = f"{name}/{path.stem}"
                if key in found:
                    continue
                if time.monotonic() - began > seconds:
                    print(f"stopped after {seconds:.0f} s: the same command goes on")
                    return
                source = path.read_text()
                stage = await device.verify(task, source)
                row: dict[str, object] = {"outcome": str(stage.outcome), "reason": stage.reason}
                if stage.outcome is Outcome.PASSED:
                    measured = await device.profile(task, source)
                    row = {"outcome": str(measured.stage.outcome), "reason": measured.stage.reason}
                    if measured.timing is not None:
                        row["microseconds"] = measured.timing.microseconds
                    if measured.profile is not None:
                        row["bottleneck"] = str(measured.profile.dominant.bottleneck)
                found[key] = row
                out.write_text(json.dumps(found, indent=1) + "\n")
                print(f"{key:40s} {row['outcome']} {row.get('microseconds', row['reason'])}",
                      flush=True)  # fmt: skip
    finally:
        device.close()


def compare(
    simulated: Mapping[str, dict[str, object]], real: Mapping[str, dict[str, object]]
) -> str:
    """Return the table and the correlations of each task, as text."""
    lines = []
    both = [key for key in real if "microseconds" in real[key]
            and "microseconds" in simulated.get(key, {})]  # fmt: skip
    for task, group in itertools.groupby(sorted(both), lambda key: key.split("/")[0]):
        keys = list(group)
        ours = np.array([float(str(simulated[key]["microseconds"])) for key in keys])
        theirs = np.array([float(str(real[key]["microseconds"])) for key in keys])
        for key, mine, true in zip(keys, ours, theirs, strict=True):
            lines.append(f"{key:40s} measured {true:9.1f} us  simulated {mine:9.1f} us  "
                         f"ratio {mine / true:.2f}")  # fmt: skip
        pairs = [(a, b) for a, b in itertools.permutations(range(len(keys)), 2)
                 if theirs[b] >= PAIR * theirs[a]]  # fmt: skip
        right = sum(ours[b] > ours[a] for a, b in pairs)
        lines.append(
            f"{task}: {len(keys)} candidates, Spearman {spearman(ours, theirs):.3f}, Kendall "
            f"{kendall(ours, theirs):.3f}, pairs that differ by {PAIR}x in order: {right} of "
            f"{len(pairs)}; the simulator's best is {theirs[ours.argmin()] / theirs.min():.2f}x "
            "the real best's time"
        )
    for key in sorted(set(simulated) | set(real)):
        if key not in both:
            told = [f"{name}: {rows.get(key, {}).get('outcome', 'not run')}"
                    for name, rows in (("simulated", simulated), ("measured", real))]  # fmt: skip
            lines.append(f"{key:40s} left out, {', '.join(told)}")
    return "\n".join(lines)


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Return the correlation of ranks; no ties among measured times are expected."""
    ranks = [np.argsort(np.argsort(values)) for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1]) if len(a) > 1 else 1.0


def kendall(a: np.ndarray, b: np.ndarray) -> float:
    """Return the pairs in order less those that are not, over all pairs."""
    signs = [np.sign(a[i] - a[j]) * np.sign(b[i] - b[j])
             for i, j in itertools.combinations(range(len(a)), 2)]  # fmt: skip
    return float(np.mean(signs)) if signs else 1.0


def main() -> None:
    """Run or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("--device", default="simulated")
    running.add_argument("--gpu", default="")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--seconds", type=float, default=3600.0)
    running.add_argument("tasks", nargs="*", default=["product", "convolution", "attention"])
    comparing = commands.add_parser("compare")
    comparing.add_argument("simulated", type=Path)
    comparing.add_argument("measured", type=Path)
    given = parser.parse_args()
    if given.command == "run":
        asyncio.run(run(given.device, given.gpu, given.out, given.tasks, given.seconds))
    else:
        print(compare(json.loads(given.simulated.read_text()),
                      json.loads(given.measured.read_text())))  # fmt: skip


if __name__ == "__main__":
    main()

"""Run every example twice on one fresh knowledge base and report what the second run gained.

    python benchmarks/runs/examples.py [--out benchmarks/results/examples.json] [--gpu H100] \
        [--seed 0]

For each example: initial and best simulated time, techniques, wall seconds and evaluations of a
first run on an empty knowledge base, and after how many evaluations each run first reached the
first run's best. Every time is simulated; only wall seconds are measured on this machine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SAME = 1.001
"""Times within a factor of this count as the same."""


def optimize(task: Path, run: Path, knowledge: Path, gpu: str, seed: int) -> dict[str, Any]:
    """Run the command line once and return its JSON object, with the wall seconds outside."""
    began = time.monotonic()
    done = subprocess.run(
        [
            sys.executable, "-m", "kernelblaster", "optimize", str(task), "--run", str(run),
            "--kb", str(knowledge), "--gpu", gpu, "--seed", str(seed), "--json",
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{task.name}: exit {done.returncode}: {done.stderr.strip()[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result | {"wall_seconds": time.monotonic() - began}


def evaluations_until(run: Path, microseconds: float) -> int | None:
    """Return how many evaluations a run had made when one was as fast as `microseconds`."""
    with sqlite3.connect(run / "run.sqlite") as database:
        times = database.execute("SELECT microseconds FROM evaluations ORDER BY rowid").fetchall()
    for number, (value,) in enumerate(times, start=1):
        if value is not None and value <= microseconds * SAME:
            return number
    return None


def main() -> None:
    """Run all examples and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--gpu", default="H100")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("tasks", nargs="*", help="example names; all by default")
    arguments = parser.parse_args()
    names = arguments.tasks or sorted(path.stem for path in EXAMPLES.glob("*.py"))
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="kernelblaster-") as folder:
            scratch = Path(folder)
            task, knowledge = EXAMPLES / f"{name}.py", scratch / "kb"
            first, second = (
                optimize(task, scratch / run, knowledge, arguments.gpu, arguments.seed)
                for run in ("first", "second")
            )
            best = first["best_us"]
            row = {
                "task": name,
                "initial_us": first["initial_us"],
                "best_us": best,
                "gain": first["gain"],
                "bottleneck_before": first["bottleneck_before"],
                "bottleneck_after": first["bottleneck_after"],
                "techniques": first["techniques"],
                "wall_seconds": round(first["wall_seconds"], 1),
                "evaluations": first["evaluations"],
                "outcomes": first["outcomes"],
                "to_best_first": evaluations_until(scratch / "first", best),
                "to_best_second": evaluations_until(scratch / "second", best),
                "second_best_us": second["best_us"],
            }
        rows.append(row)
        print(
            f"{name:12s} {row['initial_us']:9.1f} -> {row['best_us']:8.1f} us  "
            f"{row['gain']:6.2f}x  {row['evaluations']:2d} evaluations  "
            f"{row['wall_seconds']:5.1f} s  to best {row['to_best_first']} then "
            f"{row['to_best_second']}  {', '.join(row['techniques'])}",
            flush=True,
        )
    document = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {platform.system()}",
        "gpu": arguments.gpu,
        "provenance": "simulated",
        "seed": arguments.seed,
        "rows": rows,
    }
    improved = sum(row["gain"] >= 1.5 for row in rows)
    sooner = sum(
        row["to_best_second"] is not None and row["to_best_second"] < row["to_best_first"]
        for row in rows
    )
    print(f"{improved} of {len(rows)} gain 1.5x or more; {sooner} reach the best sooner again")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

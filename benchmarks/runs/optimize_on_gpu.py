"""An `optimize` run with the built-in reasoners on this machine's GPU, for every example.

    python benchmarks/runs/optimize_on_gpu.py [--out FILE.json] [--iterations 2] [--gpus 0,1] \
        [TASK...]

For each: first kernel, best kernel, PyTorch eager and torch.compile, all in microseconds measured
in the same rounds as the kernel they stand beside; techniques; evaluations; seconds. Every run
starts with an empty knowledge base of its own. Needs a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def baselines(run: Path, microseconds: float) -> dict[str, float]:
    """Return what was measured in the same rounds as the kernel of this time."""
    with sqlite3.connect(run / "run.sqlite") as database:
        evaluations = database.execute("SELECT body FROM evaluations").fetchall()
        stages = database.execute("SELECT body FROM stages").fetchall()
    for (text,) in (*evaluations, *stages):
        found = json.loads(text)
        facts = found.get("facts") or found.get("stage", {}).get("facts")
        timing = found.get("timing")
        if timing and timing["microseconds"] == microseconds:
            wanted = ("eager_us", "compile_us", "speedup", "speedup_low", "speedup_high",
                      "profiler_unavailable")  # fmt: skip
            told = {name: facts[name] for name in wanted if name in facts}
            return told | {"elapsed_cycles": timing.get("elapsed_cycles")}
    return {}


def optimize(task: Path, folder: Path, options: list[str]) -> dict[str, Any]:
    """Run the command line once; return what it came to."""
    run = folder / "run"
    began = time.monotonic()
    done = subprocess.run(
        [
            sys.executable, "-m", "kernelblaster", "optimize", str(task), "--device", "cuda",
            "--run", str(run), "--kb", str(folder / "kb"), "--json", *options,
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        return {"task": task.stem, "failed": done.stderr.strip()[-800:]}
    result = json.loads(done.stdout.splitlines()[-1])
    kept = ("outcome", "gpu", "provenance", "initial_us", "best_us", "gain", "gain_ci",
            "techniques", "evaluations", "outcomes", "bottleneck_before", "bottleneck_after")
    return {
        "task": task.stem,
        **{name: result[name] for name in kept},
        "wall_seconds": round(time.monotonic() - began, 1),
        "beside_best": baselines(run, result["best_us"]),
    }


def main() -> None:
    """Run the examples and print one line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--iterations", default="2")
    parser.add_argument("--gpus", default="0", help="numbers of GPUs to work on: 0,1")
    parser.add_argument("tasks", nargs="*", help="example names; all by default")
    given = parser.parse_args()
    rows = []
    for name in given.tasks or sorted(path.stem for path in EXAMPLES.glob("*.py")):
        with tempfile.TemporaryDirectory(prefix="kernelblaster-") as folder:
            options = ["--iterations", given.iterations, "--gpus", given.gpus]
            rows.append(optimize(EXAMPLES / f"{name}.py", Path(folder), options))
        print(json.dumps(rows[-1]), flush=True)
        if given.out:
            document = {"date": datetime.date.today().isoformat(), "rows": rows}
            given.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

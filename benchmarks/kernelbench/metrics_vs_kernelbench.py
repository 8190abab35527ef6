"""Our fast_p and geometric means beside those of KernelBench's own score functions.

    python benchmarks/kernelbench/metrics_vs_kernelbench.py --kernelbench DIR

DIR is a checkout; its src/kernelbench/score.py is imported from there and is given the same runs.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from kernelblaster.harness.metrics import TaskOutcome, fast_p, ratio, spread, summarize
from kernelblaster.harness.records.timings import Provenance

RESULT = Path(__file__).resolve().parents[1] / "results" / "metrics_vs_kernelbench.txt"
THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 5.0)
CASES = 200


def main() -> int:
    """Compare on drawn runs; 1 where a figure differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernelbench", type=Path, required=True, help="a checkout")
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    theirs = imported(asked.kernelbench / "src" / "kernelbench" / "score.py")
    worst = dict.fromkeys(("fast_p", "mean of the valid", "mean of the valid and faster"), 0.0)
    for case in range(CASES):
        for name, difference in differences(theirs, drawn(case)).items():
            worst[name] = max(worst[name], difference)
    lines = [
        f"date: {datetime.date.today()}; python benchmarks/kernelbench/metrics_vs_kernelbench.py",
        f"{CASES} sets of 1 to 60 runs, some of which failed; largest relative difference to "
        f"KernelBench's score functions, fast_p at {', '.join(f'{p:g}' for p in THRESHOLDS)}:",
        *(f"  {name:30s} {value:.1e}" for name, value in worst.items()),
    ]
    asked.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return int(max(worst.values()) > 1e-12)


def imported(path: Path) -> Any:
    """Return a module from a file."""
    spec = importlib.util.spec_from_file_location("kernelbench_score", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drawn(case: int) -> list[TaskOutcome]:
    """Return runs of one policy: times over four orders of magnitude, a share of them failed."""
    stream = np.random.default_rng(case)
    count = int(stream.integers(1, 61))
    failed = stream.random(count) < stream.choice([0.0, 0.3, 0.9])
    eager, best = 10 ** stream.uniform(0, 4, (2, count))
    return [
        TaskOutcome(
            task=f"t{k}",
            policy="a",
            outcome="failed" if failed[k] else "improved",
            provenance=Provenance.EVENTS,
            initial_us=1e4,
            eager_us=float(eager[k]),
            best_us=None if failed[k] else float(best[k]),
        )
        for k in range(count)
    ]


def differences(theirs: Any, runs: list[TaskOutcome]) -> dict[str, float]:
    """Return how far the figures are apart, relative to theirs."""
    valid = np.array([each.valid for each in runs])
    eager = np.array([each.eager_us for each in runs])
    best = np.array([each.best_us or np.nan for each in runs])
    given = (valid, eager, best, len(runs))
    apart = {
        "fast_p": max(
            _apart(fast_p(runs, p, "eager"), theirs.fastp(*given, p)) for p in THRESHOLDS
        )
    }
    ours = summarize(runs, "eager").valid_ratios
    apart["mean of the valid"] = _apart(
        ours.geometric_mean if ours else 0.0,
        theirs.geometric_mean_speed_ratio_correct_only(*given),
    )
    faster = [r for each in runs if (r := ratio(each, "eager")) is not None and r > 1]
    apart["mean of the valid and faster"] = _apart(
        spread(faster).geometric_mean if faster else 0.0,
        theirs.geometric_mean_speed_ratio_correct_and_faster_only(*given),
    )
    return apart


def _apart(ours: float, theirs: float) -> float:
    return abs(ours - theirs) / max(abs(theirs), 1e-300) if ours != theirs else 0.0


if __name__ == "__main__":
    raise SystemExit(main())

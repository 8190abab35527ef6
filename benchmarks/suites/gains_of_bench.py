"""What the winners of a bench gained over each task's first kernel, and hold at unseen sizes.

    python benchmarks/suites/gains_of_bench.py BENCH [--out FILE.md]

BENCH is a directory of `kernelblaster bench`. Its report sets winners beside PyTorch; a search is
answerable for what it gained over the kernel that it began with. Geometric means are over the tasks
that have ended for all policies. At unseen sizes each check of a winner counts as one.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

NAME = 48


def main() -> int:
    """Print the tables, or write them to a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bench", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    text = tables(ended(given.bench))
    if given.out:
        given.out.write_text(text)
    else:
        print(text, end="")
    return 0


def ended(bench: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the results of the first seed by task and policy; those that failed have none."""
    found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for path in sorted(bench.glob("runs/*/seed-0/*/result.json")):
        result = json.loads(path.read_text())
        if result.get("best_us"):
            found[path.parent.name][result["policy"]] = result
    return dict(found)


def tables(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the gains by task, their means, and what became of the checks at unseen sizes."""
    policies = list(dict.fromkeys(policy for each in results.values() for policy in each))
    whole = [each for each in results.values() if set(each) == set(policies)]
    means = ", ".join(
        f"{policy} {geometric_mean([gain(each[policy]) for each in whole]):.2f}x"
        for policy in policies
    )
    lines = [
        f"The {len(whole)} tasks that ended for all, geometric means: {means}.", "",
        f"| task | first kernel, us | {' | '.join(policies)} |",
        f"| {' | '.join(['---'] * (2 + len(policies)))} |",
    ]  # fmt: skip
    for task, each in sorted(results.items()):
        first = min(result["initial_us"] for result in each.values())
        gains = " | ".join(
            f"{gain(each[policy]):.2f}x" if policy in each else "-" for policy in policies
        )
        lines.append(f"| {task[:NAME]} | {first:,.0f} | {gains} |")
    checks = Counter(
        shape["outcome"]
        for each in results.values() for result in each.values() for shape in result["shapes"]
    )  # fmt: skip
    told = ", ".join(f"{count} {outcome}" for outcome, count in checks.most_common())
    lines += ["", f"Checks of winners at unseen sizes: {sum(checks.values())}; {told or 'none'}."]
    return "\n".join(lines) + "\n"


def gain(result: dict[str, Any]) -> float:
    """Return how many times faster than its first kernel what a run announced is."""
    return float(result["initial_us"] / result["best_us"])


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean; NaN of nothing."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else math.nan


if __name__ == "__main__":
    sys.exit(main())

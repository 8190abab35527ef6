"""Run the bug corpus on the simulated GPU and print what is caught, at which line, and the twins.

    python benchmarks/judge/bug_corpus.py > benchmarks/results/bug_corpus.txt

Each of tests/bugs holds one bug and, with FIXED defined, its clean twin. A bug counts as caught
where a report of its kind comes, and as at the right line where all reports of that kind name only
lines that the file marks; of a race both accesses count. Exits 1 where anything is not as expected.
"""

from __future__ import annotations

import asyncio
import datetime
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests")]

from bugs.corpus import Bug, read_all  # noqa: E402
from bugs.run import Unit, caught, refused, verify_candidates  # noqa: E402

from kernelblaster.harness.errors import UserError  # noqa: E402
from kernelblaster.harness.records.outcomes import Outcome  # noqa: E402

Row = tuple[Bug, bool, bool, set[int], str]
"""The bug, caught, at the right line, lines named, what the twin is accused of."""


def run_kernels(bugs: tuple[Bug, ...]) -> list[Row]:
    """Run each kernel and its twin."""
    unit = Unit(bugs)
    rows = []
    for bug in bugs:
        found, twin = unit.run(bug, "bug"), unit.run(bug, "twin")
        named = {line for kind, *lines in found.reports if kind == bug.report
                 for line in lines if line is not None}  # fmt: skip
        accused = ", ".join(sorted({report[0] for report in twin.reports}))
        rows.append((bug, *caught(bug, found), named, accused or ("" if twin.agree else "differs")))
    return rows


def run_candidates(bugs: tuple[Bug, ...]) -> list[Row]:
    """Verify each candidate and its twin."""
    stages = asyncio.run(verify_candidates(bugs))
    rows = []
    for bug in bugs:
        stage, twin = stages[bug.name], stages[f"twin {bug.name}"]
        line = stage.diagnostics[0].line if stage.diagnostics else None
        accused = "" if twin.outcome is Outcome.PASSED else str(twin.outcome)
        rows.append((bug, *refused(bug, stage), set() if line is None else {line}, accused))
    return rows


def main() -> int:
    """Print the table and its sums."""
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True,
        check=False,
    ).stdout.strip()  # fmt: skip
    kernels, candidates = read_all("kernels"), read_all("candidates")
    began = time.monotonic()
    rows = run_kernels(kernels) + run_candidates(candidates)
    seconds = time.monotonic() - began
    print(f"date: {datetime.date.today()}   machine: {platform.machine()}, {platform.system()}, "
          f"no GPU   commit: {commit}")  # fmt: skip
    print("python benchmarks/judge/bug_corpus.py")
    print(f"{'bug':38} {'report':19} {'caught':6} {'lines':6} {'named':18} twin")
    rows.sort(key=lambda row: (row[0].report, row[0].name))
    for bug, kind, line, named, accused in rows:
        shown = ",".join(map(str, sorted(named))) or "-"
        verdict = "right" if line and bug.lines else "none" if line else "WRONG"
        print(f"{bug.name:38} {bug.report:19} {'yes' if kind else 'NO':6} {verdict:6} {shown:18} "
              f"{accused.upper() or 'clean'}")  # fmt: skip
    with_lines = [row for row in rows if row[0].lines]
    print(f"\n{len(rows)} bugs ({len(kernels)} kernels, {len(candidates)} whole candidates) and as "
          f"many twins in {seconds:.0f} s")  # fmt: skip
    print(f"caught with the right kind: {sum(row[1] for row in rows)} of {len(rows)}")
    print(f"at the right line: {sum(row[2] for row in with_lines)} of {len(with_lines)} "
          f"({len(rows) - len(with_lines)} are verdicts on two runs that differ)")  # fmt: skip
    print(f"twins accused: {sum(bool(row[4]) for row in rows)} of {len(rows)}")
    return 0 if all(row[1] and row[2] and not row[4] for row in rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"error: {error}")

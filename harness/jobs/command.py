"""`jobs run` for the host that has the GPU, with nothing but the harness installed.

    python -m kernelblaster.harness.jobs run jobs.json -o results.json

Needs torch, numpy and pydantic, and what its devices need: a CUDA compiler.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..devices.job_records import counted
from ..devices.registry import parse_gpus
from ..errors import UserError
from ..process.interruption import Stopped, run_until_stopped
from .run import KINDS, JobsSummary, Say, run_jobs


def run_command(
    jobs: Path, results: Path, device: str, gpus: str, say: Say = print
) -> JobsSummary | None:
    """Do what `jobs run` does; None where it was interrupted (what is finished is kept).

    SIGTERM counts as Ctrl-C: a batch queue sends it at its time limit. Raises UserError.
    """
    try:
        return run_until_stopped(run_jobs(jobs, results, device, parse_gpus(gpus), say))
    except Stopped:
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the slim command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kernelblaster.harness.jobs")
    run = parser.add_subparsers(required=True).add_parser("run", help="Run a jobs file.")
    run.add_argument("jobs", type=Path, help="File of `kernelblaster jobs export`.")
    run.add_argument("-o", "--results", type=Path, required=True, help="File to write.")
    run.add_argument("--device", default="auto", help=", ".join(KINDS))
    run.add_argument("--gpus", default="0", help="Which GPUs work, for example 0,1.")
    given = parser.parse_args(arguments)
    try:
        summary = run_command(given.jobs, given.results, given.device, given.gpus)
    except UserError as error:
        print(f"kernelblaster: {error}", file=sys.stderr)
        return 2
    return conclude(summary, given.results)


def conclude(summary: JobsSummary | None, results: Path, say: Say = print) -> int:
    """Say what `jobs run` came to; return its exit code: 0, 2 for jobs left, 130 interrupted."""
    if summary is None:
        print(
            f"stopped; the results so far are in {results}, and the same command goes on",
            file=sys.stderr,
        )
        return 130
    counts = ", ".join(f"{name} {count}" for name, count in sorted(summary.outcomes.items()))
    known = f", {summary.known} were there" if summary.known else ""
    say(f"{counted(summary.ran)} run{known} ({counts or 'no results'}): {summary.results}")
    for reason in summary.unanswered:
        print(f"kernelblaster: without a result, {reason}", file=sys.stderr)
    return 2 if summary.unanswered else 0


"""Counts what of real CUDA code the simulated GPU compiles, runs and gets right.

    python benchmarks/simulator/simulator_census.py [--init FOLDER] [--gpu H200] [--only WORD] \
        [-o FILE]

FOLDER is a checkout of programs with drivers (NAME/init.cu and NAME/driver.cpp, as in the public
KernelBlaster repository's data/kernelbench-cuda; they are only measured, nothing is kept). Without
it only the kernels of census_kernels are run, each against its task's PyTorch reference.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from census_own import run_kernels
from census_programs import Outcome, run_programs
from program_host import build_runtime

from kernelblaster.harness.build.toolchain import Toolchain, find_toolchain
from kernelblaster.harness.simt.run.candidate import HARMLESS

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Run the census and print it, to a file too where one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--init", type=Path)
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--only", default="")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    toolchain = find_toolchain()
    lines = [f"date: {datetime.date.today().isoformat()}", f"commit: {_commit()}",
             f"simulated GPU: {arguments.gpu}; {toolchain.identity}"]  # fmt: skip
    print("\n".join(lines), flush=True)
    for title, outcomes in (
        ("own kernels (benchmarks/simulator/census_kernels)",
         run_kernels(arguments.gpu, toolchain, arguments.only)),
        ("init.cu programs", _programs(arguments, toolchain)),
    ):  # fmt: skip
        done = []
        lines.append(f"\n## {title}")
        for outcome in outcomes:
            done.append(outcome)
            lines.append(_line(outcome))
            print(lines[-1], flush=True)
        lines += ["", *_summary(done)]
        print("\n".join(_summary(done)), flush=True)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n")


def _programs(arguments: argparse.Namespace, toolchain: Toolchain) -> Iterator[Outcome]:
    if arguments.init:
        runtime = build_runtime(
            toolchain.cuda_headers(), [HERE / "program_runtime.c", HERE / "census_program.c"]
        )
        yield from run_programs(
            arguments.init, arguments.gpu, toolchain, runtime, arguments.only
        )


def _line(outcome: Outcome) -> str:
    if outcome.right:
        state = "right"
    elif outcome.refused:
        state = "refused"
    elif not outcome.compiled:
        state = "no build"
    else:
        state = "wrong" if outcome.ran else "did not run"
    told = Counter(report["kind"] for report in outcome.reports)
    kinds = ", ".join(f"{kind} x{count}" for kind, count in sorted(told.items()))
    why = outcome.refused or outcome.note
    size = ("", "larger sizes")[outcome.attempt]
    parts = [f"{outcome.name:60.60s} {state:12s} {outcome.instructions:>12d} warp instr.",
             outcome.difference, size, kinds, why, outcome.profile]  # fmt: skip
    return "  ".join(part for part in parts if part)


def _summary(outcomes: list[Outcome]) -> list[str]:
    refused = Counter(outcome.refused for outcome in outcomes if outcome.refused)
    accused = [o for o in outcomes if any(r["kind"] not in HARMLESS for r in o.reports)]
    return [
        f"{len(outcomes)} sources: {sum(o.compiled for o in outcomes)} compile, "
        f"{sum(o.ran for o in outcomes)} run, {sum(o.right for o in outcomes)} right, "
        f"{sum(bool(o.refused) for o in outcomes)} refused",
        f"accused of a fault: {len(accused)}, of them with a right answer: "
        f"{sum(o.right for o in accused)}",
        *(f"  {o.name}: {r['kind']} line {r['line']}: {r['detail']}"
          for o in accused for r in o.reports if r["kind"] not in HARMLESS),
        *(f"refused {count}: {reason}" for reason, count in refused.most_common()),
    ]  # fmt: skip


def _commit() -> str:
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())

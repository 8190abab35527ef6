"""What each of Nsight Compute's collections costs and says, on a program on this machine's GPU.

    nvcc -O3 -arch=sm_90 -lineinfo kernels.cu -o kernels
    python benchmarks/profiling/ncu_sections.py [--out FILE.json] [--repeats 3] -- ./kernels \
        [ARGUMENTS]

For `basic`, `default`, `detailed` and `full`: passes of each kernel, wall seconds of the profiling
run beside those of the program alone, seconds to read the report by ncu's Python module and by its
CSV pages, size of the report. And what is lost against `full`: launches with another bottleneck,
the largest distance of their signatures (beside that of `full` against itself, profiled again: the
noise), and any number in which the two readers differ. The basis for the choice of the default.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelblaster.harness.nsight.command import BASIC, DEFAULT, DETAILED, FULL, Collection
from kernelblaster.harness.nsight.ncu import find_ncu, profile_program, python_modules, read_report
from kernelblaster.harness.nsight.profile import NcuResult
from kernelblaster.harness.records.profiles import LaunchProfile, Profile
from kernelblaster.memory.knowledge.states.distances import distance
from kernelblaster.memory.knowledge.states.signature import signature_of

SECONDS = 600.0


def measure(
    ncu: Path, program: Sequence[str], collection: Collection, repeats: int
) -> tuple[dict[str, Any], NcuResult]:
    """Return the costs of a collection, and the last run's result."""
    seconds, official, pages = [], [], []
    differences: list[str] = []
    result: NcuResult | None = None
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="ncu-sections-") as folder:
            directory = Path(folder)
            began = time.monotonic()
            result = profile_program(program, directory=directory, seconds=SECONDS, ncu=ncu,
                                     collection=collection, environment=os.environ)  # fmt: skip
            whole = time.monotonic() - began
            if result.profile is None:
                raise SystemExit(f"{collection.name}: {result.reason}; {result.remedy}")
            report = directory / "profile.ncu-rep"
            log = (directory / "ncu.log").read_text(errors="replace")
            size = report.stat().st_size
            read = {}
            for kind in (True, False):
                began = time.monotonic()
                read[kind] = read_report(report, ncu, directory=directory, official=kind)
                (official if kind else pages).append(time.monotonic() - began)
            seconds.append(whole - official[-1])
            differences = compare_readers(read[True], read[False])
    assert result is not None
    passes = [int(count) for count in re.findall(r"- (\d+) pass", log)]
    costs = {
        "collection": result.collection,
        "passes": {"median": statistics.median(passes or [0]), "max": max(passes or [0])},
        "profiling_seconds": {"median": statistics.median(seconds), "min": min(seconds)},
        "read_seconds": {"module": statistics.median(official), "csv": statistics.median(pages)},
        "module_works": read[True].reader == "python",
        "report_bytes": size,
        "metrics": len(result.profile.launches[0].metrics) if result.profile else 0,
        "launches_with_lines": sum(
            bool(launch.lines) for launch in result.profile.launches
        ) if result.profile else 0,
        "reader_differences": differences,
    }  # fmt: skip
    return costs, result


def compare_readers(one: NcuResult, other: NcuResult) -> list[str]:
    """Return in what the profiles of the two readers differ, at most 20 differences."""
    if one.profile is None or other.profile is None:
        return [f"{each.reader}: {each.reason}" for each in (one, other) if each.profile is None]
    if len(one.profile.launches) != len(other.profile.launches):
        return ["number of launches"]
    found = [] if one.rules == other.rules else ["rules"]
    for left, right in zip(one.profile.launches, other.profile.launches, strict=True):
        ignored = {"metrics": {}, "microseconds": 1.0}
        for name, value in left.model_copy(update=ignored):
            if value != getattr(right.model_copy(update=ignored), name):
                found.append(f"{left.kernel}: {name}")
        for name in sorted(left.metrics.keys() | right.metrics.keys()):
            pair = left.metrics.get(name), right.metrics.get(name)
            if None in pair or not math.isclose(*pair, rel_tol=1e-2, abs_tol=0.01):  # type: ignore
                found.append(f"{left.kernel}: {name} {pair}")
    return found[:20]


def signature(launch: LaunchProfile, like: Profile) -> tuple[float, ...]:
    """Return the signature of a launch as if it were the whole program."""
    return signature_of(like.model_copy(update={"launches": (launch,)})).values


def against(full: Profile, other: Profile) -> dict[str, Any]:
    """Return what a profile says otherwise than the full one."""
    pairs = list(zip(full.launches, other.launches, strict=True))
    distances = [
        distance(signature(one, full), signature(two, full)) for one, two in pairs
    ]  # fmt: skip
    return {
        "other_bottleneck": [
            f"{one.kernel}: {two.bottleneck} for {one.bottleneck}"
            for one, two in pairs
            if one.bottleneck != two.bottleneck
        ],
        "largest_signature_distance": max(distances),
        "median_signature_distance": statistics.median(distances),
    }


def main() -> None:
    """Measure every collection and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("program", nargs="+", help="program and arguments, after --")
    arguments = parser.parse_args()
    ncu = find_ncu()
    if ncu is None:
        raise SystemExit("ncu is not on PATH")
    alone = []
    for _ in range(arguments.repeats):
        began = time.monotonic()
        subprocess.run(arguments.program, check=True, stdout=subprocess.DEVNULL)
        alone.append(time.monotonic() - began)
    rows, results = {}, {}
    for collection in (BASIC, DEFAULT, DETAILED, FULL):
        rows[collection.name], results[collection.name] = measure(
            ncu, arguments.program, collection, arguments.repeats
        )
    again = measure(ncu, arguments.program, FULL, 1)[1]
    full = results["full"].profile
    assert full is not None
    for name, result in results.items():
        compared = again if name == "full" else result
        assert compared.profile is not None
        rows[name] |= against(full, compared.profile)
    version = subprocess.run([ncu, "--version"], capture_output=True, text=True).stdout
    outcome = {
        "date": datetime.date.today().isoformat(),
        "gpu": full.gpu,
        "ncu": version.strip().splitlines()[-1:],
        "python_module": [str(path) for path in python_modules(ncu)],
        "program": arguments.program,
        "launches": len(full.launches),
        "program_seconds": statistics.median(alone),
        "collections": rows,
    }
    print(f"{outcome['gpu']}, {outcome['launches']} launches, program alone "
          f"{outcome['program_seconds']:.2f} s")  # fmt: skip
    print(f"{'':10}{'passes':>8}{'profiling s':>13}{'module s':>10}{'csv s':>8}{'signature':>11}  "
          "other bottleneck")  # fmt: skip
    for name, row in rows.items():
        print(
            f"{name:10}{row['passes']['median']:8.0f}{row['profiling_seconds']['median']:13.2f}"
            f"{row['read_seconds']['module']:10.2f}{row['read_seconds']['csv']:8.2f}"
            f"{row['largest_signature_distance']:11.4f}  {len(row['other_bottleneck'])}"
        )
        for text in row["reader_differences"]:
            print(f"    readers differ: {text}")
    if arguments.out:
        arguments.out.write_text(json.dumps(outcome, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())

"""The tests that need a GPU, on every GPU of this machine: first one alone, then many side by side.

    python benchmarks/judge/gpu_tests.py [--processes 6] [--seconds 540] [--log FILE] [PATH ...]

A machine that was just started reads PyTorch and the toolkit for the first time, and compiles what
is compiled once: one test does that alone, then each GPU has so many processes and a part of the
tests. Results go to FILE (by default gpu_tests.tsv in $OUT or here) as they come, a line a test:
its name, outcome, seconds and what went wrong; what passed there is not run again, so that a run
that was ended goes on (a copy of results/gpu_tests_h200.tsv is such a file). A test that takes long
has its threads' stacks printed. pytest loads this file as a plugin, too.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PATHS = ("tests/harness", "tests/conformance/test_verdicts.py", "tests/exploits")
FIRST = "tests/conformance/test_verdicts.py::test_of_the_gpu[right-plain]"
LOG, PART, ONLY = "GPU_TESTS_LOG", "GPU_TESTS_PART", "GPU_TESTS_ONLY"
STUCK_SECONDS = 120


def main() -> int:
    """Run the tests; returns 0 where all that ran have passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=6, help="beside each other on a GPU")
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--log", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("paths", nargs="*", default=PATHS)
    given = parser.parse_args()
    log = given.log / "gpu_tests.tsv" if given.log.is_dir() else given.log
    ends = time.monotonic() + given.seconds
    gpus = gpu_numbers()
    first = started([FIRST], gpus[0], log, processes=0, only=FIRST)
    print(f"first: {finished(first, ends)}", flush=True)
    running = [
        started(given.paths, gpu, log, processes=given.processes, part=f"{number}/{len(gpus)}")
        for number, gpu in enumerate(gpus)
    ]
    for each in running:
        print(finished(each, ends), flush=True)
    rows = [line.split("\t") for line in log.read_text().splitlines() if "\t" in line]
    failed = [row for row in rows if row[1] == "failed"]
    print(f"{sum(row[1] == 'passed' for row in rows)} passed, {len(failed)} failed")
    for row in failed:
        print("\t".join(row)[:600])
    return 1 if failed else 0


def gpu_numbers() -> list[str]:
    """Return the numbers of the GPUs here, or of those that CUDA_VISIBLE_DEVICES names."""
    if given := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return given.split(",")
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def started(
    paths: list[str], gpu: str, log: Path, *, processes: int, part: str = "0/1", only: str = ""
) -> subprocess.Popen[str]:
    """Start pytest on one GPU."""
    threads = max(1, (os.cpu_count() or 1) // (len(gpu_numbers()) * max(1, processes)))
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": gpu, LOG: str(log.resolve()), PART: part, ONLY: only,
        "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)]),
        # PyTorch on the CPU takes all cores, in each process: many would stand in each other's way.
        "OMP_NUM_THREADS": str(threads),
    }  # fmt: skip
    command = [
        sys.executable, "-m", "pytest", "-o", "addopts=", "--import-mode=importlib", "-q",
        "-o", f"faulthandler_timeout={STUCK_SECONDS}", "-p", "no:cacheprovider", "-p", "gpu_tests",
        "-m", "gpu", "--dist", "load", "-n", str(processes), *paths,
    ]  # fmt: skip
    out = log.with_name(f"{log.stem}_{gpu}_{part.replace('/', '_of_')}.txt").open("w")
    return subprocess.Popen(
        command, env=environment, cwd=HERE.parents[1], stdout=out, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


def finished(process: subprocess.Popen[str], ends: float) -> str:
    """Wait for pytest, interrupt it at the end of the time, and say how long it took."""
    began = time.monotonic()
    try:
        process.wait(timeout=max(1.0, ends - began))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
    return f"status {process.wait()} after {time.monotonic() - began:.0f} s"


# ---- the plugin ----


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what passed before, and what is another GPU's part; honest kernels come first."""
    if LOG not in os.environ:
        return
    log, only = Path(os.environ[LOG]), os.environ[ONLY]
    lines = log.read_text().splitlines() if log.exists() else []
    done = {line.split("\t")[0] for line in lines if "\tpassed\t" in line}
    number, parts = map(int, os.environ[PART].split("/"))
    wanted = [item for item in items if item.nodeid not in done or item.nodeid == only]
    # A right kernel that is refused is the worst news, and the soonest mended.
    wanted = sorted(wanted, key=lambda item: "honest" not in item.nodeid)[number::parts]
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write one result down; in the process that gathers them."""
    if LOG not in os.environ or "PYTEST_XDIST_WORKER" in os.environ:
        return
    if report.when == "call" or not report.passed:
        why = "" if report.passed else " | ".join(str(report.longrepr)[-600:].splitlines())
        with Path(os.environ[LOG]).open("a") as log:
            log.write(f"{report.nodeid}\t{report.outcome}\t{report.duration:.1f}\t{why}\n")


if __name__ == "__main__":
    sys.exit(main())

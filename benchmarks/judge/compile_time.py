"""What leaving out unused headers saves of a compilation: the examples' first kernels, in pairs.

    python benchmarks/judge/compile_time.py [--rounds 5] [--out FILE.txt]

Each kernel is compiled as the toolchain does, with C++17's special functions included though it
names none, and with `--extended-lambda` beside them, in turns; the cache is a folder of its own.
Prints medians of wall and processor seconds and their ratios to the first.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import re
import resource
import statistics
import tempfile
import time
from pathlib import Path

from kernelblaster.harness.build import toolchain
from kernelblaster.harness.build.toolchain import build_now, find_toolchain
from kernelblaster.harness.task.contract import header as header_of
from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.writer import InitialKernel, write_initial_cuda

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WAYS = {
    "as it is": (),
    "with special functions": ("_NAMES_STD",),
    "and --extended-lambda": ("_NAMES_STD", "_ASKS_FOR_MARKS"),
}
"""What of the toolchain's is made to hold for every source."""
ALWAYS = {"_NAMES_STD": re.compile(""), "_ASKS_FOR_MARKS": ""}


async def sources() -> list[tuple[str, str]]:
    """Return (source, header) of each example's first kernel at its small dimensions."""
    found = []
    for path in sorted(EXAMPLES.glob("*.py")):
        task = await load_task(path)
        written = write_initial_cuda(task)
        if isinstance(written, InitialKernel):
            found.append((written.source, header_of(task.verify)))
    return found


def seconds(source: str, header: str, way: str) -> tuple[float, float]:
    """Return wall and processor seconds of one compilation."""
    usual = {name: getattr(toolchain, name) for name in ALWAYS}
    for name in WAYS[way]:
        setattr(toolchain, name, ALWAYS[name])
    try:
        began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        built = build_now(find_toolchain(), f"{source}\n// {time.time_ns()}\n", header, "sm_90")
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
    finally:
        for name, value in usual.items():
            setattr(toolchain, name, value)
    assert built.succeeded, built.diagnostics
    processor = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return time.monotonic() - began, processor


def main() -> None:
    """Compile in turns and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    kernels = asyncio.run(sources())
    took: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        seconds(*kernels[0], "as it is")  # What is built once.
        for _ in range(given.rounds):
            for kernel in kernels:
                for way in WAYS:
                    took[way].append(seconds(*kernel, way))
    now = datetime.datetime.now(datetime.UTC)
    lines = [f"{now:%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, load "
             f"{os.getloadavg()[0]:.1f}, {find_toolchain().described}: {len(kernels)} kernels, "
             f"{given.rounds} rounds; medians, seconds",
             f"{'':<24} {'wall':>6} {'processor':>10}"]  # fmt: skip
    first = [statistics.median(column) for column in zip(*took["as it is"], strict=True)]
    for way, rows in took.items():
        wall, processor = (statistics.median(column) for column in zip(*rows, strict=True))
        lines.append(f"{way:<24} {wall:6.2f} {processor:10.2f}   "
                     f"{wall / first[0]:.2f} and {processor / first[1]:.2f} times")  # fmt: skip
    print(text := "\n".join(lines))
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()

"""Run the examples with this checkout and with another one, in turns: same runs, and how long?

    python benchmarks/runs/examples_against.py /path/to/other/checkout [--turns 2] [--floor]
        [--out benchmarks/results/examples_end_to_end.txt] [EXAMPLE...]

Each run is the README's main job, `kernelblaster optimize EXAMPLE` on the simulated device with a
fresh knowledge base, and each example with a cache that holds nothing of it. What is built once for
a machine (the simulator's own libraries, Python's bytecode) is built by one run of each checkout
before the first that counts. The two versions make different numbers of
evaluations, so seconds per evaluation stand beside the seconds; processor seconds are user and
system time of the whole process tree and bear other load on the machine better than wall seconds.
Below each example stands whether the two came to the same: techniques, times and number of
evaluations, which for one seed only a change of what the program does may change.
With --floor what this checkout had compiled is compiled again by nvcc alone: what would be left if
all else took no time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
WARM_UP = "row_sum"
SAME = (
    "techniques", "path", "initial_us", "best_us", "gain", "gain_ci", "evaluations", "outcomes",
    "bottleneck_before", "bottleneck_after", "outcome",
)  # fmt: skip


@dataclass(frozen=True)
class Seconds:
    """What one run took and did."""

    wall: float
    processor: float
    evaluations: int
    came_to: dict[str, object]
    """What must not change with the code: path, times, gain, outcomes."""


def optimize(checkout: Path, example: str, cache: Path) -> Seconds:
    """Run one example once with the package of `checkout`, its caches kept in `cache`."""
    with tempfile.TemporaryDirectory(prefix="kernelblaster-") as folder:
        scratch = Path(folder)
        (scratch / "site").mkdir()
        (scratch / "site/kernelblaster").symlink_to(checkout)
        for kept in ("builds", "cases", "full", "tasks"):
            shutil.rmtree(cache / "kernelblaster" / kept, ignore_errors=True)
        # An installed package has its bytecode.
        environment = dict(os.environ)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        done = subprocess.run(
            [
                sys.executable, "-m", "kernelblaster", "optimize",
                str(HERE / f"examples/{example}.py"), "--run", str(scratch / "run"),
                "--kb", str(scratch / "kb"), "--gpu", "H100", "--seed", "0", "--json",
            ],
            capture_output=True, text=True, cwd=scratch,
            env=environment | {"PYTHONPATH": str(scratch / "site"), "XDG_CACHE_HOME": str(cache)},
        )  # fmt: skip
        wall = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{checkout}: {example}: exit {done.returncode}: {done.stderr[-500:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    came_to = {name: result[name] for name in SAME}
    return Seconds(wall, processor, result["evaluations"], came_to)


def differences(old: Seconds, new: Seconds) -> str:
    """Return in words what two runs came to differently; empty where they came to the same."""
    return "; ".join(
        f"{name}: {before!r} then {new.came_to[name]!r}"
        for name, before in old.came_to.items()
        if before != new.came_to[name]
    )


def nvcc_alone(cache: Path) -> tuple[int, float]:
    """Compile again whatever lies in a cache; return how many sources, and processor seconds."""
    from kernelblaster.harness.build.toolchain import FLAGS, find_toolchain

    toolchain, count, seconds = find_toolchain(), 0, 0.0
    for source in sorted((cache / "kernelblaster/builds").glob("*/*/candidate.cu")):
        arch = json.loads((source.parent / "build.json").read_text())["arch"]
        with tempfile.TemporaryDirectory(prefix="kernelblaster-") as folder:
            for name in ("candidate.cu", "task.cuh"):
                shutil.copy(source.with_name(name), folder)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [toolchain.nvcc, f"-arch={arch}", "-ccbin", toolchain.host_compiler, *FLAGS,
                 "candidate.cu", "-o", "candidate.so"],
                cwd=folder, capture_output=True,
            )  # fmt: skip
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        count += 1
        seconds += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return count, seconds


def commit(checkout: Path) -> str:
    """Return a checkout's commit, short, and whether files differ from it."""
    git = ["git", "-C", str(checkout)]
    name = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
    changed = subprocess.check_output([*git, "status", "--porcelain", "-uno"], text=True)
    return name + (" with changes" if changed.strip() else "")


def row(example: str, old: list[Seconds], new: list[Seconds]) -> str:
    """Return one line of the table: means over the turns, then every turn's wall seconds."""

    def mean(runs: list[Seconds], field: str) -> float:
        return float(sum(getattr(run, field) for run in runs) / len(runs))

    cells = [f"{example:12s}"]
    for field, form in (("wall", "7.1f"), ("processor", "7.1f"), ("evaluations", "5.0f")):
        cells += [f"{mean(old, field):{form}} {mean(new, field):{form}}"]
    per = [mean(runs, "wall") / mean(runs, "evaluations") for runs in (old, new)]
    cells += [f"{per[0]:6.2f} {per[1]:6.2f}", f"{mean(old, 'wall') / mean(new, 'wall'):5.2f}"]
    turns = ", ".join(f"{a.wall:.1f} {b.wall:.1f}" for a, b in zip(old, new, strict=True))
    return "  ".join(cells) + f"   {turns}"


def totals(old: list[Seconds], new: list[Seconds]) -> list[str]:
    """Return the sums of both sides and their ratios."""
    lines = []
    for what, field in (
        ("wall seconds", "wall"), ("processor seconds", "processor"), ("evaluations", "evaluations")
    ):  # fmt: skip
        sums = [float(sum(getattr(run, field) for run in runs)) for runs in (old, new)]
        ratio = sums[0] / sums[1]
        lines.append(f"sum of {what}: {sums[0]:.1f} old, {sums[1]:.1f} new, ratio {ratio:.2f}")
    return lines


def main() -> None:
    """Run the examples in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("old", type=Path, help="the other checkout")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--floor", action="store_true", help="compile again by nvcc alone")
    parser.add_argument("examples", nargs="*", help="example names; all by default")
    arguments = parser.parse_intermixed_args()
    other = arguments.old.resolve()
    names = arguments.examples or sorted(path.stem for path in HERE.glob("examples/*.py"))
    lines = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {platform.machine()}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start",
        f"old: {commit(other)}, new: {commit(HERE)}; {arguments.turns} turns each, in turns",
        "",
        f"{'':12s}  {'wall s':^15s}  {'processor s':^15s}  {'evaluat.':^11s}  {'s/evaluat.':^13s}  "
        "old/",
        f"{'example':12s}  {'old':>7s} {'new':>7s}  {'old':>7s} {'new':>7s}  {'old':>5s} "
        f"{'new':>5s}  {'old':>6s} {'new':>6s}    new   wall s by turn (old new)",
    ]
    print("\n".join(lines), flush=True)
    all_old: list[Seconds] = []
    all_new: list[Seconds] = []
    with tempfile.TemporaryDirectory(prefix="kernelblaster-cache-") as folder:
        caches = {other: Path(folder) / "old", HERE: Path(folder) / "new"}
        for checkout, cache in caches.items():
            optimize(checkout, WARM_UP, cache)
        for name in names:
            old, new = [], []
            for _ in range(arguments.turns):
                old.append(optimize(other, name, caches[other]))
                new.append(optimize(HERE, name, caches[HERE]))
            all_old += old
            all_new += new
            lines.append(row(name, old, new))
            differs = differences(old[0], new[0])
            said = f"NOT the same: {differs}" if differs else "the same run"
            lines.append(f"{'':12s}  {said}")
            if arguments.floor:
                count, seconds = nvcc_alone(caches[HERE])
                lines.append(f"{'':12s}  nvcc alone, {count} sources: {seconds:.1f} processor s")
            print("\n".join(lines[-2 - arguments.floor :]), flush=True)
            if arguments.out:
                arguments.out.write_text("\n".join([*lines, "", *totals(all_old, all_new)]) + "\n")
    print("\n".join(totals(all_old, all_new)))


if __name__ == "__main__":
    main()

"""Which of KernelBench's problems load, at which sizes, and have a first kernel that is right.

    python benchmarks/kernelbench/kernelbench_coverage.py --kernelbench DIR
    python benchmarks/kernelbench/kernelbench_coverage.py --kernelbench DIR --device simulated \
        --profile --jobs 8 --part-seconds 520 --results OUT
    python benchmarks/kernelbench/kernelbench_coverage.py --kernelbench DIR --device cuda:0,1 \
        --jobs 6
    python benchmarks/kernelbench/kernelbench_coverage.py --kernelbench DIR --device cuda:0,1 \
        --profile --sample 40 --results OTHER
    python benchmarks/kernelbench/kernelbench_coverage.py --kernelbench DIR --orders --jobs 8

Without --device problems are loaded and a first kernel is written, and nothing is compiled; with it
the kernel is compiled and verified, with --profile also profiled at full dimensions, by a sample of
its blocks where the device is simulated. On a GPU it is also timed beside PyTorch, and the same
kernel is evaluated once more, in a source that nobody compiled before: that is what a candidate
costs in a search (`source to time`, and with --profile to its profile). It has the GPU to itself
then: other problems load, write and wait. --once leaves that out, and profiles the first time.
--sample takes so many problems at random, and in that order. With --orders nothing is written: each
problem's answers are added in another order, and with parts left out, and the judge is asked
(other_orders.py). A problem that drops out at random in training is read a second time with --mode
eval, and the table says so.

Each problem has two processor cores to itself where there are as many (--cores), as many threads
in PyTorch, and a process that is replaced where it ends: none ends the others. Of several GPUs
(cuda:0,1) each process keeps to one, in turn. Rows say how much memory a problem took at most
(`gib`, looked at once a second). What has a limit is loading and writing
(--load-seconds), compiling and verifying (--seconds), and the profile (--profile-seconds), each in
seconds of the processor for each core, so that other work on the machine does not count, and by the
wall in PATIENCE times as much: a problem that runs past one is a row that names the stage. With
--part-seconds no problem is under way after that time; those that were have no row, and come first
the next time.

Rows go to kernelbench_coverage_DEVICE.jsonl in --results as they come; who runs the script again
goes on behind them, longest first, with --again from the start, with --failed by what did not pass.
The table beside it is written anew at the end of each run. The problems' texts are read where they
lie. What a first kernel writes is compared with PyTorch's answer at full dimensions where all
tensors are at most --compare-gib: that takes six times the memory for each of the --jobs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import random
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import IO, Any

from processor_time import memory_bytes, processor_seconds

from kernelblaster.harness.task.kernelbench import kernelbench_files

RESULTS = Path(__file__).resolve().parents[1] / "results"
PROBLEM = Path(__file__).resolve().with_name("kernelbench_problem.py")
COLUMNS = ("loads", "written", "compiled", "verified", "profiled")
COLUMNS_ON_A_GPU = ("loads", "written", "compiled", "verified", "measured", "profiled")
COLUMNS_OF_ORDERS = ("loads", "ordered", "noticed")
STAGES = {
    "load": "load", "write": "load", "compile": "verify", "verify": "verify",
    "profile": "profile", "measure": "profile", "again": "profile", "order": "load",
    "wait": "wait",
}  # fmt: skip
"""Which limit counts for each stage; to wait for other problems has none."""
PATIENCE = 10
SLOWEST = 10
"""Evaluations whose parts the table tells."""
LOOK_SECONDS = 1.0
"""How often it is seen how long a problem's processes have worked."""
USUAL_SECONDS = 10.0
"""What a problem is taken to need of which nothing is known."""
Row = dict[str, Any]


def main() -> int:
    """Run what is asked, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernelbench", type=Path, required=True, help="a checkout")
    parser.add_argument("--level", type=int)
    parser.add_argument("--problem", type=int)
    parser.add_argument("--device", default="", help="simulated or cuda:0,1; else none")
    parser.add_argument("--gpu", default="")
    parser.add_argument("--profile", action="store_true", help="profile what was verified")
    parser.add_argument("--sample", type=int, default=0, help="so many problems, at random")
    parser.add_argument("--orders", action="store_true", help="add in other orders")
    parser.add_argument("--once", action="store_true", help="evaluate no kernel a second time")
    parser.add_argument("--compare-gib", type=float, default=0.0)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of rows and table")
    parser.add_argument("--jobs", type=int, default=1, help="problems at a time")
    parser.add_argument("--cores", type=int, default=2, help="of the processor, for a problem")
    parser.add_argument("--seconds", type=float, default=60.0, help="to compile and verify")
    parser.add_argument("--load-seconds", type=float, default=400.0)
    parser.add_argument("--profile-seconds", type=float, default=120.0)
    parser.add_argument("--part-seconds", type=float, default=0.0, help="end after so long")
    parser.add_argument("--again", action="store_true", help="forget earlier rows")
    parser.add_argument("--failed", action="store_true", help="cover again what did not pass")
    parser.add_argument("--table", action="store_true", help="only write the table")
    asked = parser.parse_args()
    asked.results.mkdir(parents=True, exist_ok=True)
    kind = asked.device.partition(":")[0]
    name = f"coverage{'_' if kind else ''}{kind}"
    rows = asked.results / f"kernelbench_{'orders' if asked.orders else name}.jsonl"
    if asked.again:
        rows.unlink(missing_ok=True)
    files = kernelbench_files(asked.kernelbench, asked.level, asked.problem)
    if asked.sample:
        files = random.Random(0).sample(files, asked.sample)
    if asked.problem is None:
        known = {place_in(row) for row in read_rows(rows) if stands(row, asked)}
        files = [path for path in files if place_of(path) not in known]
    if not asked.table:
        cover(files if asked.sample else in_order(files), rows, asked)
    table = rows.with_suffix(".md")
    table.write_text("\n".join(table_of(read_rows(rows), asked)) + "\n", encoding="utf-8")
    print(f"table: {table}")
    return 0


def stands(row: Row, asked: argparse.Namespace) -> bool:
    """Say whether a row answers what is asked."""
    if asked.failed:
        return all(row.get(column) for column in columns_of(asked))
    return not asked.profile or bool(row.get("profiled") or row.get("reason"))


def columns_of(asked: argparse.Namespace) -> Sequence[str]:
    """Return the columns that are reached for."""
    if asked.orders:
        return COLUMNS_OF_ORDERS
    if asked.device.startswith("cuda"):
        return COLUMNS_ON_A_GPU[: 6 if asked.profile else 5]
    return COLUMNS[: (5 if asked.profile else 4) if asked.device else 2]


def commit_here() -> str:
    """Return the commit of this checkout, empty where it is none."""
    command = ["git", "-C", str(PROBLEM.parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def in_order(files: Sequence[Path]) -> list[Path]:
    """Return problems, those that took longest to load first."""
    known = {
        place_in(row): float(row["seconds"])
        for row in read_rows(RESULTS / "kernelbench_coverage.jsonl")
    }
    return sorted(files, key=lambda path: -known.get(place_of(path), USUAL_SECONDS))


def cover(files: Sequence[Path], rows: Path, asked: argparse.Namespace) -> None:
    """Cover problems, so many at a time, and write each row as it comes."""
    ends = time.monotonic() + asked.part_seconds if asked.part_seconds else float("inf")
    cores = sorted(os.sched_getaffinity(0))
    commit = commit_here()
    idle: queue.Queue[Helper] = queue.Queue()
    for number in range(asked.jobs):
        own = [cores[(number * asked.cores + each) % len(cores)] for each in range(asked.cores)]
        idle.put(Helper(asked, sorted(set(own)), device_of(asked.device, number)))

    def one(path: Path) -> Row | None:
        helper = idle.get()
        try:
            return helper.row(path, ends)
        finally:
            idle.put(helper)

    left = 0
    with ThreadPoolExecutor(asked.jobs) as pool, rows.open("a", encoding="utf-8") as out:
        for done in as_completed([pool.submit(one, path) for path in files]):
            row = done.result()
            if row is None:
                left += 1
                continue
            row |= {"side_by_side": asked.jobs, "commit": commit}
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(in_words(row), flush=True)
    while not idle.empty():
        idle.get().close()
    if left:
        print(f"{left} problems are left: run the same command again")


def device_of(device: str, number: int) -> str:
    """Return the device of a process: one of several GPUs, in turn."""
    kind, _, gpus = device.partition(":")
    if kind != "cuda" or not gpus:
        return device
    each = gpus.split(",")
    return f"{kind}:{each[number % len(each)]}"


def place_of(path: Path) -> tuple[int, int]:
    """Return level and number of a problem's file."""
    return int(path.parent.name.removeprefix("level")), int(path.name.split("_")[0])


def place_in(row: Row) -> tuple[int, int]:
    """Return level and number of a row's problem."""
    return row["level"], row["problem"]


def read_rows(path: Path) -> list[Row]:
    """Return the last row of each problem, in order."""
    found = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found[place_in(row)] = row
    return [found[place] for place in sorted(found)]


class Helper:
    """A process that covers one problem after the other; another takes its place where it ends.

    Args:
        asked: what each problem is put through.
        cores: numbers of the processor cores that it keeps to.
        device: what it opens; empty for none.
    """

    def __init__(self, asked: argparse.Namespace, cores: Sequence[int], device: str) -> None:
        self._asked, self._cores, self._device = asked, cores, device
        self._process: subprocess.Popen[bytes] | None = None
        self._most = 0
        """Bytes that a problem took at most."""

    def row(self, path: Path, ends: float) -> Row | None:
        """Return the row of a problem; what keeps the process from answering is a row too.

        None where the time `ends` comes before.
        """
        began = time.monotonic()
        if began >= ends:
            return None
        self._most = 0
        found = self._answer(path, ends)
        if found is None:
            return None
        level, problem = place_of(path)
        seconds = round(time.monotonic() - began, 1)
        own = {"cores": len(self._cores), "seconds": seconds, "gib": round(self._most / 2**30, 2)}
        return {"level": level, "problem": problem, "name": path.stem} | found | own

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answer(self, path: Path, ends: float) -> Row | None:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        row: Row = {"loads": False}
        stage = "load"
        spent = {kind: (0.0, 0.0) for kind in STAGES.values()}
        limits = {"load": self._asked.load_seconds, "verify": self._asked.seconds,
                  "profile": self._asked.profile_seconds, "wait": math.inf}  # fmt: skip
        try:
            process.stdin.write(f"{path}\n".encode())
            while True:
                limit, (waited, worked) = limits[STAGES[stage]], spent[STAGES[stage]]
                began, used = time.monotonic(), processor_seconds(process.pid)
                line = None
                while line is None:
                    line = _line_of(process.stdout, min(ends, time.monotonic() + LOOK_SECONDS))
                    took = time.monotonic() - began
                    self._most = max(self._most, memory_bytes(process.pid))
                    busy = processor_seconds(process.pid) - used
                    if line is None and time.monotonic() >= ends:
                        self.close()
                        return None
                    if (
                        worked + busy > limit * len(self._cores)
                        or waited + took > PATIENCE * limit
                    ):
                        break
                spent[STAGES[stage]] = (waited + took, worked + busy)
                if line is None:
                    row.setdefault("took", {})[stage] = round(took, 2)
                    row.setdefault("processor", {})[stage] = round(busy, 2)
                    why = f"{stage}: past the limit of {limit:g} s of the processor for each core"
                    break
                answer = json.loads(line)
                row, stage = answer["row"], answer["stage"]
                if stage == "done":
                    return row
        except (ValueError, OSError):
            why = f"{stage}: its process ended with status {process.wait()}"
        self.close()
        return row | {"reason": why}

    def _running(self) -> subprocess.Popen[bytes]:
        asked = self._asked
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(PROBLEM), "--device", self._device, "--gpu", asked.gpu,
                 "--cores", ",".join(map(str, self._cores)),
                 "--compare-gib", str(asked.compare_gib), *["--profile"] * asked.profile,
                 *["--orders"] * asked.orders, *["--once"] * asked.once],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                env={"OMP_NUM_THREADS": str(len(self._cores)), "OMP_WAIT_POLICY": "PASSIVE"}
                | os.environ,
            )  # fmt: skip
        return self._process


def _line_of(answers: IO[bytes], until: float) -> bytes | None:
    """Return the next line, empty at the end of all; None where it does not come in time.

    `answers` has no buffer, in which a second line would lie that nobody waits for.
    """
    ready, _, _ = select.select([answers], [], [], max(0.0, until - time.monotonic()))
    return answers.readline() if ready else None


def in_words(row: Row) -> str:
    """Return a row as one line."""
    reached = [name for name in (*COLUMNS_ON_A_GPU, *COLUMNS_OF_ORDERS[1:]) if row.get(name)]
    why = f": {row['reason']}" if row.get("reason") else ""
    done = ", ".join(reached) or "not loaded"
    took = ", ".join(f"{name} {seconds:.1f}" for name, seconds in row.get("took", {}).items())
    return f"{row['level']}/{row['problem']} {row['name']} {done} ({took} s){why}"[:300]


def to_verify(row: Row, clock: str = "took") -> float:
    """Return the seconds in which a row's kernel was compiled and verified."""
    taken = row.get(clock, {})
    return float(taken.get("compile", 0.0) + taken.get("verify", 0.0))


def to_time(row: Row) -> float:
    """Return the seconds from a new source to its verdict and time, with the task known."""
    return float(row["took"].get("again", 0.0)) - float(row.get("profile_seconds", 0.0))


def to_profile(row: Row) -> float:
    """Return the seconds from a new source to its profile, with the task known."""
    return float(row["took"].get("again", 0.0))


def table_of(rows: list[Row], asked: argparse.Namespace) -> Iterator[str]:
    """Yield the table's lines."""
    columns, device = columns_of(asked), asked.device
    times = {"load": lambda row: row["took"].get("load", 0.0)}
    if asked.orders:
        times["judge"] = lambda row: row["took"].get("order", 0.0)
    if device:
        times["compile and verify"] = to_verify
    if device.startswith("cuda"):
        times["first measurement"] = lambda row: row["took"].get("measure", 0.0)
        times["source to time"] = to_time
        if asked.profile:
            times["source to profile"] = to_profile
    elif asked.profile:
        times["profile"] = lambda row: row["took"].get("profile", 0.0)
    about = "passes added in another order" if asked.orders else "has a first kernel"
    yield f"# KernelBench: what loads, and what {about}"
    yield ""
    cores, beside = (
        " or ".join(map(str, sorted({row[name] for row in rows if name in row}))) or "some"
        for name in ("cores", "side_by_side")
    )
    commits = ", ".join(sorted({row["commit"] for row in rows if row.get("commit")}))
    yield f"Device: {device or 'none (loading and writing alone)'}. Seconds are of the wall (rows"
    yield f"in the .jsonl hold those of the processor too); each problem had {cores} cores, and"
    yield f"{beside} ran side by side. Made by benchmarks/kernelbench/kernelbench_coverage.py"
    yield f"of {commits or 'no commit that is known'}."
    yield ""
    heads = [f"{part} {name}" for name in times for part in ("median", "95 %", "longest")]
    yield "| level | problems | " + " | ".join([*columns, *heads]) + " |"
    yield "|---" * (len(columns) + len(heads) + 2) + "|"
    for level in sorted({row["level"] for row in rows}):
        mine = [row for row in rows if row["level"] == level]
        cells = [str(sum(bool(row.get(name)) for row in mine)) for name in columns]
        for seconds in times.values():
            taken = sorted(each for row in mine if row.get("took") if (each := seconds(row)))
            cells += _spread(taken)
        yield f"| {level} | {len(mine)} | {' | '.join(cells)} |"
    yield ""
    yield "| problem | " + " | ".join(columns) + " | " + " | ".join(times) + " | small variant, " \
        "or why not |"
    yield "|---" * (len(columns) + len(times) + 2) + "|"
    for row in rows:
        told = [row.get("small", "")] if row.get("loads") else []
        if row.get("eager_us") and row.get("microseconds"):
            told += [f"{row['microseconds']:g} us, PyTorch {row['eager_us']:.1f}"]
        told += ["read with --mode eval"] if row.get("mode") == "eval" else []
        told += [f"degenerate: {row['degenerate']}"] if row.get("degenerate") else []
        told += [row["reason"]] if row.get("reason") else []
        name = f"{row['level']}/{row['problem']} {row['name'].split('_', 1)[-1]}"
        told += [f"{n} side by side"] if (n := row.get("side_by_side", 1)) > 1 else []
        words = "; ".join(told).replace("|", "\\|").replace("\n", " ")[:500]
        cells = ["yes" if row.get(column) else "no" for column in columns]
        cells += [
            f"{took:.1f}" if row.get("took") and (took := seconds(row)) else ""
            for seconds in times.values()
        ]
        yield f"| {name} | {' | '.join(cells)} | {words} |"
    yield from slowest(rows)


def slowest(rows: list[Row]) -> Iterator[str]:
    """Yield what the evaluations that took longest spent their time on."""
    timed = [row for row in rows if row.get("took", {}).get("again") and row.get("microseconds")]
    timed.sort(key=to_profile, reverse=True)
    if not timed:
        return
    yield ""
    yield f"The {min(SLOWEST, len(timed))} evaluations that took longest, of kernels in a source " \
        "that nobody had compiled:"
    yield ""
    yield "| problem | all | compile | verify | time | profile | a call, launches | longest parts |"
    yield "|---" * 8 + "|"
    for row in timed[:SLOWEST]:
        verify, measure = row.get("verify_seconds", 0.0), row.get("measure_seconds", 0.0)
        spent = [to_time(row) - verify - measure, verify, measure, row.get("profile_seconds", 0.0)]
        parts = [
            (float(seconds), f"{stage}: {name}")
            for stage in ("verify", "measure")
            for part in row.get(f"{stage}_parts", "").split(", ") if part
            for name, seconds, _ in [part.rsplit(" ", 2)]
        ]  # fmt: skip
        parts.sort(reverse=True)
        longest = ", ".join(f"{name} {took:.1f} s" for took, name in parts[:3])
        cells = [f"{took:.1f} s" for took in (to_profile(row), *spent)]
        told = f"{row['microseconds'] / 1000:.1f} ms, {row.get('launches')}"
        counted = row.get("profile_counted", "")
        of_all = f"; {counted.split(' launches')[0]} counted" if counted else ""
        place = f"{row['level']}/{row['problem']} {row['name'].split('_', 1)[-1]}"
        yield f"| {place} | {' | '.join(cells)} | {told}{of_all} | {longest} |"


def _spread(taken: Sequence[float]) -> list[str]:
    """Return median, 95 % and most of sorted seconds, in words."""
    if not taken:
        return ["", "", ""]
    found = (statistics.median(taken), taken[int(0.95 * (len(taken) - 1))], taken[-1])
    return [f"{each:.1f} s" for each in found]


if __name__ == "__main__":
    sys.exit(main())

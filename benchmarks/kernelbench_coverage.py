"""Which of KernelBench's problems load, at which sizes, and have a first kernel that is right.

    python benchmarks/kernelbench_coverage.py --kernelbench DIR
    python benchmarks/kernelbench_coverage.py --kernelbench DIR --device simulated --level 1
    python benchmarks/kernelbench_coverage.py --kernelbench DIR --device cuda --jobs 4

Without --device problems are loaded and a first kernel is written, and nothing is compiled. A
problem that drops out at random in training is read a second time with --mode eval, and the table
says so. Each has a time limit, and a process that is replaced where it ends: none ends the others.
Rows go to benchmarks/results/kernelbench_coverage_DEVICE.jsonl as they come; who runs the script
again goes on behind them, with --again from the start. The table beside it is written anew at the
end of each run. The problems' texts are read where they lie.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import queue
import select
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from kernelblaster.harness.devices.registry import open_device
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records import Reading, Task
from kernelblaster.harness.task.cases import read_degenerate
from kernelblaster.harness.task.kernelbench import kernelbench_files
from kernelblaster.harness.task.loading import (
    cases_directory,
    load_task_now,
    small_variant_in_words,
)
from kernelblaster.tools.first_kernel.writer import NotWritten, write_initial_cuda

RESULTS = Path(__file__).resolve().parent / "results"
COLUMNS = ("loads", "written", "compiled", "verified")
Row = dict[str, Any]


def main() -> int:
    """Run what is asked, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernelbench", type=Path, required=True, help="a checkout")
    parser.add_argument("--level", type=int)
    parser.add_argument("--problem", type=int)
    parser.add_argument("--device", default="", help="simulated, cuda or cuda:N; else none")
    parser.add_argument("--gpu", default="")
    parser.add_argument("--jobs", type=int, default=1, help="problems at a time")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit for one problem")
    parser.add_argument("--again", action="store_true", help="forget earlier rows")
    parser.add_argument("--table", action="store_true", help="only write the table")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.device, asked.gpu)
        return 0
    rows = RESULTS / f"kernelbench_coverage{'_' if asked.device else ''}{asked.device}.jsonl"
    if asked.again:
        rows.unlink(missing_ok=True)
    files = kernelbench_files(asked.kernelbench, asked.level, asked.problem)
    known = {(row["level"], row["problem"]) for row in read_rows(rows)}
    left = [path for path in files if place_of(path) not in known]
    if asked.problem is not None:
        left = files
    if not asked.table:
        cover(left, rows, asked)
    table = rows.with_suffix(".md")
    table.write_text("\n".join(table_of(read_rows(rows), asked.device)) + "\n", encoding="utf-8")
    print(f"table: {table}")
    return 0


def cover(files: list[Path], rows: Path, asked: argparse.Namespace) -> None:
    """Cover problems, so many at a time, and write each row as it comes."""
    idle: queue.Queue[Helper] = queue.Queue()
    for _ in range(asked.jobs):
        idle.put(Helper(asked))

    def one(path: Path) -> Row:
        helper = idle.get()
        try:
            return helper.row(path)
        finally:
            idle.put(helper)

    with ThreadPoolExecutor(asked.jobs) as pool, rows.open("a", encoding="utf-8") as out:
        for done in as_completed([pool.submit(one, path) for path in files]):
            row = done.result()
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(in_words(row), flush=True)
    while not idle.empty():
        idle.get().close()


def place_of(path: Path) -> tuple[int, int]:
    """Return level and number of a problem's file."""
    return int(path.parent.name.removeprefix("level")), int(path.name.split("_")[0])


def read_rows(path: Path) -> list[Row]:
    """Return the last row of each problem, in order."""
    found = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found[row["level"], row["problem"]] = row
    return [found[place] for place in sorted(found)]


class Helper:
    """A process that covers one problem after the other; another takes its place where it ends."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._process: subprocess.Popen[str] | None = None

    def row(self, path: Path) -> Row:
        """Return the row of a problem; what keeps the process from answering is a row too."""
        level, problem = place_of(path)
        began = time.monotonic()
        found = self._answer(path)
        seconds = round(time.monotonic() - began, 1)
        return {"level": level, "problem": problem, "name": path.stem} | found | {
            "seconds": seconds
        }

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answer(self, path: Path) -> Row:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__, "--kernelbench", str(self._asked.kernelbench),
                 "--serve", "--device", self._asked.device, "--gpu", self._asked.gpu],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], self._asked.seconds)
            if ready:
                return dict(json.loads(process.stdout.readline()))
            why = f"ran past {self._asked.seconds:.0f} s"
        except (ValueError, OSError):
            why = f"its process ended with status {process.wait()}"
        self.close()
        return {"loads": False, "reason": why}


def serve(device: str, gpu: str) -> None:
    """Cover the problems named on standard input, a row each on standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What a library prints is no answer.
    for line in sys.stdin:
        try:
            row = covered(Path(line.strip()), device, gpu)
        except Exception as error:
            row = {"loads": False, "reason": f"a fault of ours: {type(error).__name__}: {error}"}
        answers.write(json.dumps(row) + "\n")
        answers.flush()


def covered(path: Path, device: str, gpu: str) -> Row:
    """Return the row of one problem: how far it came, and why not further."""
    row: Row = dict.fromkeys(COLUMNS, False)
    took: dict[str, float] = {}
    began = time.monotonic()
    try:
        task, row["mode"] = load(path)
    except UserError as error:
        return row | {"reason": str(error).removeprefix(f"{path}: ")}
    took["load"] = time.monotonic() - began
    folder = cases_directory(task)
    row |= {
        "loads": True,
        "small": small_variant_in_words(task),
        "elements": sum(tensor.numel for tensor in task.verify.tensors),
        "operations": len(task.program.nodes) if task.program else 0,
        "degenerate": read_degenerate(folder),
    }
    began = time.monotonic()
    try:
        written = write_initial_cuda(task)
    except Exception as error:  # What else it says of the problem counts all the same.
        written = NotWritten(reason=f"a fault of ours: {type(error).__name__}: {error}")
    took["write"] = time.monotonic() - began
    if isinstance(written, NotWritten):
        row["reason"] = written.reason
    else:
        row["written"] = True
        if device:
            asyncio.run(evaluated(task, written.source, device, gpu, row, took))
    # Inputs and answers of 250 problems are more than a cache should hold.
    shutil.rmtree(folder, ignore_errors=True)
    return row | {"took": {name: round(seconds, 2) for name, seconds in took.items()}}


def load(path: Path) -> tuple[Task, str]:
    """Load a problem as it is, or, where it drops out at random, as it is evaluated."""
    try:
        return load_task_now(path), "file"
    except UserError as error:
        if "--mode eval" not in str(error):
            raise
    return load_task_now(path, reading=Reading(mode="eval")), "eval"


async def evaluated(
    task: Task, source: str, device: str, gpu: str, row: Row, took: dict[str, float]
) -> None:
    """Compile and verify a first kernel, degenerate tasks too."""
    allowed = task.model_copy(update={"reading": task.reading.model_copy(
        update={"allow_degenerate": True})})  # fmt: skip
    opened = open_device(device, gpu)
    try:
        for name, stage in (("compiled", opened.compile), ("verified", opened.verify)):
            began = time.monotonic()
            result = await stage(allowed, source)
            took[name] = time.monotonic() - began
            row[name] = result.outcome == "passed"
            if not row[name]:
                row["reason"] = f"{result.outcome}: {result.reason}"
                return
    finally:
        opened.close()


def in_words(row: Row) -> str:
    """Return a row as one line."""
    reached = [name for name in COLUMNS if row.get(name)]
    why = f": {row['reason']}" if row.get("reason") else ""
    done = ", ".join(reached) or "not loaded"
    return f"{row['level']}/{row['problem']} {row['name']} {done} ({row['seconds']} s){why}"[:300]


def table_of(rows: list[Row], device: str) -> Iterator[str]:
    """Yield the table's lines."""
    columns = COLUMNS if device else COLUMNS[:2]
    yield "# KernelBench: what loads, and what has a first kernel"
    yield ""
    load_average = os.getloadavg()[0]
    yield f"Device: {device or 'none (loading and writing alone)'}. Seconds are of the wall,"
    yield f"on {os.cpu_count()} cores, which others may have used too (load {load_average:.0f} at "
    yield "the end). Made by benchmarks/kernelbench_coverage.py."
    yield ""
    yield "| level | problems | " + " | ".join(columns) + " | median load | 95 % |"
    yield "|---" * (len(columns) + 4) + "|"
    for level in sorted({row["level"] for row in rows}):
        mine = [row for row in rows if row["level"] == level]
        counts = [str(sum(bool(row.get(name)) for row in mine)) for name in columns]
        loads = sorted(row["took"]["load"] for row in mine if row.get("took"))
        middle = f"{statistics.median(loads):.1f} s" if loads else ""
        late = f"{loads[int(0.95 * (len(loads) - 1))]:.1f} s" if loads else ""
        yield f"| {level} | {len(mine)} | {' | '.join(counts)} | {middle} | {late} |"
    yield ""
    yield "| problem | " + " | ".join(columns) + " | seconds | small variant, or why not |"
    yield "|---" * (len(columns) + 3) + "|"
    mark: Callable[[Row, str], str] = lambda row, name: "yes" if row.get(name) else "no"  # noqa: E731
    for row in rows:
        told = [row.get("small", "")] if row.get("loads") else []
        told += ["read with --mode eval"] if row.get("mode") == "eval" else []
        told += [f"degenerate: {row['degenerate']}"] if row.get("degenerate") else []
        told += [row["reason"]] if row.get("reason") else []
        words = "; ".join(told).replace("|", "\\|").replace("\n", " ")[:500]
        name = f"{row['level']}/{row['problem']} {row['name'].split('_', 1)[-1]}"
        marks = " | ".join(mark(row, column) for column in columns)
        yield f"| {name} | {marks} | {row['seconds']} | {words} |"


if __name__ == "__main__":
    sys.exit(main())

"""Covers problems of KernelBench, one after the other, for kernelbench_coverage.py, which asks.

Paths come on standard input, an answer goes out as each stage begins, with the row as it is then:
{"stage": "verify", "row": {...}}, and {"stage": "done", ...} with all of it. Who asks stops this
process where a stage takes too long. It keeps to the processor cores that it is given, and so do
all processes that it starts. Beside each stage's seconds of the wall (`took`) stand those of the
processor (`processor`), of all these processes together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from processor_time import processor_seconds

from kernelblaster.harness.devices.protocol import Device
from kernelblaster.harness.devices.registry import open_device
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records import Reading, StageResult, Task
from kernelblaster.harness.task import full_case
from kernelblaster.harness.task.cases import prepare_cases_now, read_degenerate
from kernelblaster.harness.task.loading import load_task_now, small_variant_in_words
from kernelblaster.tools.first_kernel.writer import NotWritten, write_initial_cuda

COLUMNS = ("loads", "written", "compiled", "verified", "profiled", "ordered", "noticed")
EVALUATED = "--mode eval"
"""Stands in a reason that names this flag as the way out."""
FACTS = ("full_size_coverage", "full_size_unchecked")
Row = dict[str, Any]


def main() -> None:
    """Answer until nobody asks any more."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="")
    parser.add_argument("--gpu", default="")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--orders", action="store_true")
    parser.add_argument("--compare-gib", type=float, default=0.0)
    parser.add_argument("--cores", default="", help="numbers of processor cores, by commas")
    asked = parser.parse_args()
    if asked.cores:
        os.sched_setaffinity(0, {int(each) for each in asked.cores.split(",")})
    full_case.FULL_CASE_BYTES = int(asked.compare_gib * 2**30)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What a library prints is no answer.
    paths: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_take_in, args=(paths,), daemon=True).start()
    while True:
        problem = Problem(
            Path(paths.get()), lambda answer: print(json.dumps(answer), file=answers, flush=True)
        )
        try:
            problem.cover(asked)
        except Exception as error:
            problem.row["reason"] = f"a fault of ours: {type(error).__name__}: {error}"
        problem.tell("done")


def _take_in(paths: queue.Queue[str]) -> None:
    """Pass on what is asked; where who asks has ended, end, whatever is under way."""
    for line in sys.stdin:
        paths.put(line.strip())
    os._exit(0)


class Problem:
    """One problem on its way through the stages; `row` says how far it came, and why not further.

    Args:
        path: its file.
        answer: is told of each stage as it begins.
    """

    def __init__(self, path: Path, answer: Callable[[Row], None]) -> None:
        self.row: Row = dict.fromkeys(COLUMNS, False) | {"took": {}, "processor": {}}
        self._path, self._answer = path, answer

    def tell(self, stage: str) -> None:
        """Say which stage begins, and what is known so far."""
        self._answer({"stage": stage, "row": self.row})

    def cover(self, asked: argparse.Namespace) -> None:
        """Bring the problem as far as it comes."""
        try:
            with self._stage("load"):
                task, self.row["mode"] = _load(self._path)
                folder = prepare_cases_now(task)
        except UserError as error:
            self.row["reason"] = str(error).removeprefix(f"{self._path}: ")
            return
        self.row |= {
            "loads": True,
            "small": small_variant_in_words(task),
            "elements": sum(tensor.numel for tensor in task.verify.tensors),
            "bytes": sum(tensor.nbytes for tensor in task.full.tensors),
            "operations": len(task.program.nodes) if task.program else 0,
            "degenerate": read_degenerate(folder),
        }
        if asked.orders:
            self._order(task)
        else:
            self._write(task, asked)
        # Inputs and answers of 250 problems are more than a cache should hold.
        for each in (folder, *full_case.full_case_directories(task)):
            shutil.rmtree(each, ignore_errors=True)

    def _order(self, task: Task) -> None:
        """Ask what the judge says of answers in other orders."""
        from other_orders import judged  # It takes PyTorch.

        with self._stage("order"):
            found = judged(task)
        self.row |= found
        if found["refused"] or found["unnoticed"]:
            told = [f"refused: {', '.join(found['refused'])}"] if found["refused"] else []
            told += [f"not noticed: {each}" for each in found["unnoticed"]]
            self.row["reason"] = "; ".join(told)

    def _write(self, task: Task, asked: argparse.Namespace) -> None:
        """Write a first kernel, and evaluate it where there is a device."""
        with self._stage("write"):
            try:
                written = write_initial_cuda(task)
            except Exception as error:  # What else it says of the problem counts all the same.
                written = NotWritten(reason=f"a fault of ours: {type(error).__name__}: {error}")
        if isinstance(written, NotWritten) and EVALUATED in written.reason:
            # Its answer hangs on no random number, or it would not have been loaded.
            with self._stage("load"):
                task, self.row["mode"] = _load_evaluated(self._path)
            self._write(task, asked)
            return
        if isinstance(written, NotWritten):
            self.row["reason"] = written.reason
            return
        self.row["written"] = True
        if asked.device:
            opened = open_device(asked.device, asked.gpu)
            try:
                asyncio.run(self._evaluate(task, written.source, opened, asked.profile))
            finally:
                opened.close()

    async def _evaluate(self, task: Task, source: str, device: Device, profile: bool) -> None:
        """Compile, verify and profile a first kernel, of degenerate tasks too."""
        allowed = task.model_copy(update={"reading": task.reading.model_copy(
            update={"allow_degenerate": True})})  # fmt: skip
        with self._stage("compile"):
            compiled = await device.compile(allowed, source)
        if not self._passed("compiled", compiled):
            return
        with self._stage("verify"):
            verified = await device.verify(allowed, source)
        self.row["launches"] = verified.facts.get("launches")
        if not self._passed("verified", verified) or not profile:
            return
        with self._stage("profile"):
            measured = await device.profile(allowed, source)
        facts = measured.stage.facts
        self.row |= {name: facts[name] for name in FACTS if name in facts}
        if measured.timing:
            self.row["microseconds"] = round(measured.timing.microseconds, 1)
        self._passed("profiled", measured.stage)

    def _passed(self, column: str, result: StageResult) -> bool:
        self.row[column] = passed = result.outcome == "passed"
        if not passed:
            self.row["reason"] = f"{result.outcome}: {result.reason}"
        return passed

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self.tell(name)
        began, used = time.monotonic(), processor_seconds(os.getpid())
        try:
            yield
        finally:
            self.row["took"][name] = round(time.monotonic() - began, 2)
            self.row["processor"][name] = round(processor_seconds(os.getpid()) - used, 2)


def _load(path: Path) -> tuple[Task, str]:
    """Load a problem as it is, or, where it drops out at random, as it is evaluated."""
    try:
        return load_task_now(path), "file"
    except UserError as error:
        if EVALUATED not in str(error):
            raise
    return _load_evaluated(path)


def _load_evaluated(path: Path) -> tuple[Task, str]:
    """Load a problem as it is evaluated, and say so."""
    return load_task_now(path, reading=Reading(mode="eval")), "eval"


if __name__ == "__main__":
    main()

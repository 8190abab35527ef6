"""Covers problems of KernelBench, one after the other, for kernelbench_coverage.py, which asks.

Paths come on standard input, an answer goes out as each stage begins, with the row as it is then:
{"stage": "verify", "row": {...}}, and {"stage": "done", ...} with all of it. Who asks stops this
process where a stage takes too long. It keeps to the processor cores that it is given, and so do
all processes that it starts. Beside each stage's seconds of the wall (`took`) stand those of the
processor (`processor`), of all these processes together. The device stays open from one problem to
the next. On a GPU a kernel that is right is timed beside PyTorch, and then put through all gates
once more, in a source that nobody has compiled (`again`): the task and the worker are known then,
and no other problem uses the GPU. What is waited for that is in no stage's seconds.
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
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from processor_time import processor_seconds

from kernelblaster.harness.cuda.gpu_lock import gpu_lock
from kernelblaster.harness.devices.cuda import CudaDevice
from kernelblaster.harness.devices.protocol import Device, Measurement
from kernelblaster.harness.devices.registry import open_device
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.readings import Reading
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task import full_case
from kernelblaster.harness.task.cases import prepare_cases_now, read_degenerate
from kernelblaster.harness.task.loading import load_task_now, small_variant_in_words
from kernelblaster.tools.first_kernel.writer import NotWritten, write_initial_cuda

COLUMNS = (
    "loads", "written", "compiled", "verified", "measured", "profiled", "ordered", "noticed",
)  # fmt: skip
EVALUATED = "--mode eval"
"""Stands in a reason that names this flag as the way out."""
FACTS = (
    "full_size_coverage", "full_size_unchecked", "eager_us", "rounds", "measure_seconds",
    "profile_seconds", "profile_counted", "verify_seconds", "verify_parts", "measure_parts",
)  # fmt: skip
Row = dict[str, Any]


def main() -> None:
    """Answer until nobody asks any more."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="")
    parser.add_argument("--gpu", default="")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--orders", action="store_true")
    parser.add_argument("--once", action="store_true")
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
    device = _opened(asked) if asked.device else None
    while True:
        problem = Problem(
            Path(paths.get()), lambda answer: print(json.dumps(answer), file=answers, flush=True)
        )
        try:
            problem.cover(asked, device)
        except UserError as error:
            problem.row["reason"] = str(error)
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

    def cover(self, asked: argparse.Namespace, device: Device | None) -> None:
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
            self._write(task, asked, device)
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

    def _write(self, task: Task, asked: argparse.Namespace, device: Device | None) -> None:
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
            self._write(task, asked, device)
            return
        if isinstance(written, NotWritten):
            self.row["reason"] = written.reason
            return
        self.row["written"] = True
        if device:
            asyncio.run(self._evaluate(task, written.source, device, asked.profile, asked.once))

    async def _evaluate(
        self, task: Task, source: str, device: Device, profile: bool, once: bool
    ) -> None:
        """Compile, verify and profile a first kernel, of degenerate tasks too."""
        allowed = task.model_copy(update={"reading": task.reading.model_copy(
            update={"allow_degenerate": True})})  # fmt: skip
        with self._stage("compile"):
            compiled = await device.compile(allowed, source)
        if not self._passed("compiled", compiled):
            return
        gpu = device if isinstance(device, CudaDevice) else None
        with self._turn(gpu, shared=True), self._stage("verify"):
            verified = await device.verify(allowed, source)
        self.row["launches"] = verified.facts.get("launches")
        self._note(verified.facts)
        if not self._passed("verified", verified) or not (profile or gpu):
            return
        first = gpu.without_counters() if gpu and not once else device
        with self._turn(gpu, shared=True), self._stage("measure" if gpu else "profile"):
            measured = await first.profile(allowed, source)
        self._note(measured.stage.facts, measured)
        passed = self._passed("measured" if gpu else "profiled", measured.stage)
        if passed and gpu and not once:
            with self._turn(gpu, shared=False), self._stage("again"):
                fresh = f"{source}// {uuid.uuid4()}\n"
                stage = await device.compile(allowed, fresh)
                if stage.outcome is Outcome.PASSED:
                    stage = await device.verify(allowed, fresh)
                self._note(stage.facts)
                if stage.outcome is Outcome.PASSED:
                    measured = await device.profile(allowed, fresh)
                    stage = measured.stage
            self._note(measured.stage.facts, measured)
            self._passed("profiled" if profile else "measured", stage)

    def _note(self, facts: Mapping[str, Any], measured: Measurement | None = None) -> None:
        self.row |= {name: facts[name] for name in FACTS if name in facts}
        if measured and measured.timing:
            self.row["microseconds"] = round(measured.timing.microseconds, 1)

    def _passed(self, column: str, result: StageResult) -> bool:
        self.row[column] = passed = result.outcome == "passed"
        if not passed:
            self.row["reason"] = f"{result.outcome}: {result.reason}"
        return passed

    @contextmanager
    def _turn(self, gpu: CudaDevice | None, *, shared: bool) -> Iterator[None]:
        """Wait until no problem has the GPU to itself, or no other uses it; for a part of the time
        keep it. Where there is none, wait for nobody."""
        if gpu is None:
            yield
            return
        self.tell("wait")
        with gpu_lock(f"{gpu.gpus[0].uuid}-problems", shared=shared):
            yield

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self.tell(name)
        began, used = time.monotonic(), processor_seconds(os.getpid())
        try:
            yield
        finally:
            self.row["took"][name] = round(time.monotonic() - began, 2)
            self.row["processor"][name] = round(processor_seconds(os.getpid()) - used, 2)


def _opened(asked: argparse.Namespace) -> Device:
    """Open the device; a GPU counts nothing where no profile is asked for, and compiles nothing."""
    kind, _, number = asked.device.partition(":")
    if kind != "cuda":
        return open_device(asked.device, asked.gpu)
    return CudaDevice((int(number or 0),), with_counters=asked.profile, with_compile=False)


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

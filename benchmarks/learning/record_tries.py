"""Try techniques at random on small tasks, and write down what was known before and what came.

    python benchmarks/learning/record_tries.py [--out DIR] [--work DIR] [--gpus H100,A100] \
        [--seeds 2] [--part 0/2] [--seconds 600] [TASK.py...]

On the simulated device, with the built-in rewrites. From the first kernel of a task on, a walk
tries a few (technique, setting) drawn with equal chances among all that apply, and goes on from
one of the children that lost little. Each try is a line as soon as it is known; a walk that is
there is not made again, and what was evaluated once is read from `--work`, so that it can be
stopped and started at any time. `--part I/N` takes each Nth walk, for several processes.

What the lines of DIR/GPU-TASK.jsonl say is told in `try_lines.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import random
import sys
import time
from pathlib import Path
from typing import Any

from try_lines import Line, as_text, kernel_line, name_of, try_line

from kernelblaster.harness.bound.speed_of_light import SpeedOfLight, speed_of_light
from kernelblaster.harness.devices.registry import open_device
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.gpus import known_gpu
from kernelblaster.harness.records.evaluations import Evaluation
from kernelblaster.harness.records.identity import source_sha256
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.loading import load_task_now
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.initial_cuda.builtin import translate
from kernelblaster.tools.evaluation.evaluator import Evaluator
from kernelblaster.tools.rewriting.records import Rewritten
from kernelblaster.tools.rewriting.target import target_of
from kernelblaster.tools.techniques.catalogue import rewrites

HERE = Path(__file__).resolve().parents[1]
OUT = HERE / "recorded_tries"
KERNELS, TRIES = 3, 5
"""Kernels of a walk, and tries from each."""
LEAST_GAIN = 0.75
"""A child slower than this is not gone on from."""

Action = tuple[str, dict[str, int]]


class Walks:
    """All walks of one task on one GPU, with their file for a memory."""

    def __init__(self, task: Task, gpu: str, store: RunStore, file: Path) -> None:
        self._task, self._gpu, self._file = task, gpu, file
        device = open_device("simulated", gpu)
        self._evaluator = Evaluator(device, store)
        known = known_gpu(gpu)
        assert known is not None
        self._bound: SpeedOfLight = speed_of_light(task, known)
        self._lines = _lines(file)
        self._kernels = {line["kernel"]: line for line in self._lines if "launches" in line}

    async def walk(self, seed: int) -> None:
        """Make one walk, writing what is not yet written."""
        stream = random.Random(f"{self._task.name} {self._gpu} {seed}")
        source, applied = translate(self._task), []
        seen = await self._evaluator.evaluate(self._task, source)
        for _ in range(KERNELS):
            if seen.profile is None:
                return
            kernel = self._kernel(source, seen, applied)
            children = []
            for (technique, setting), written in self._drawn(source, kernel, stream):
                child = await self._evaluator.evaluate(self._task, written.source)
                gain = _log_gain(seen, child)
                names = [share.kernel for share in seen.profile.by_kernel]
                launch = target_of(written, source, names)
                step = technique, setting, launch
                made = _name(written.source)
                self._add(try_line(kernel, seed, step, "builtin", child.outcome, gain, made))
                if gain is not None and gain >= math.log(LEAST_GAIN):
                    told = [*applied, [*step, gain]]
                    children.append((written.source, child, told))
            if not children:
                return
            source, seen, applied = stream.choice(children)

    def _drawn(
        self, source: str, kernel: str, stream: random.Random
    ) -> list[tuple[Action, Rewritten]]:
        """Return a few rewrites of a source that were not tried on it, each of a technique."""
        tried = [line for line in self._lines if line.get("of") == kernel]
        done = {(line["technique"], json.dumps(line["setting"])) for line in tried}
        found: dict[str, dict[str, tuple[Action, Rewritten]]] = {}
        for rewrite in rewrites():
            names = list(rewrite.parameters)
            for values in itertools.product(*rewrite.parameters.values()):
                setting = dict(zip(names, values, strict=True))
                written = rewrite.apply(source, self._task, setting)
                if not isinstance(written, Rewritten):
                    continue
                if (rewrite.technique, json.dumps(setting)) in done:
                    continue
                of = found.setdefault(rewrite.technique, {})
                of.setdefault(written.source, ((rewrite.technique, setting), written))
        chosen = stream.sample(sorted(found), min(TRIES, len(found)))
        return [stream.choice(list(found[technique].values())) for technique in chosen]

    def _kernel(self, source: str, seen: Evaluation, applied: list[list[Any]]) -> str:
        """Write a kernel down once; return its name."""
        name = _name(source)
        if name in self._kernels:
            return name
        assert seen.profile is not None
        line = kernel_line(name, self._task, self._gpu, seen.profile, self._bound, applied)
        self._kernels[name] = line
        self._add(line)
        return name

    def _add(self, line: Line) -> None:
        self._lines.append(line)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(as_text([line]))


def _lines(file: Path) -> list[Line]:
    """Return what is written; a line that a kill cut short is dropped."""
    if not file.is_file():
        return []
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        file.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def _name(source: str) -> str:
    return name_of(source_sha256(source))


def _log_gain(parent: Evaluation, child: Evaluation) -> float | None:
    if child.outcome is not Outcome.PASSED or not (parent.timing and child.timing):
        return None
    return round(math.log(parent.timing.microseconds / child.timing.microseconds), 5)


def main() -> None:
    """Make the walks, first of all tasks with the first seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--work", type=Path, required=True, help="where evaluations are kept")
    parser.add_argument("--gpus", default="H100")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no walk after these")
    parser.add_argument("tasks", nargs="*", type=Path)
    given = parser.parse_args()
    tasks = given.tasks or sorted(
        [*(HERE / "suites" / "kinds").glob("*.py"), *(OUT / "tasks").glob("*.py")]
    )
    part, parts = map(int, given.part.split("/"))
    given.out.mkdir(parents=True, exist_ok=True)
    given.work.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    for seed in range(given.seeds):
        for place, (path, gpu) in enumerate(itertools.product(tasks, given.gpus.split(","))):
            done = given.work / f"{gpu}-{path.stem}-{seed}.done"
            if place % parts != part or done.exists():
                continue
            if time.monotonic() - began > given.seconds:
                return
            with RunStore(given.work / f"{gpu}-{path.stem}.sqlite") as store:
                file = given.out / f"{gpu}-{path.stem}.jsonl"
                try:
                    asyncio.run(Walks(load_task_now(path), gpu, store, file).walk(seed))
                except UserError as refused:
                    print(f"{path.stem} on {gpu}: {refused}", file=sys.stderr, flush=True)
                    continue
            done.touch()
            print(f"{time.monotonic() - began:6.0f} s  {gpu} {path.stem} {seed}", flush=True)


if __name__ == "__main__":
    main()

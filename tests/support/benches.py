"""Benches on the text device: planned, and run in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kernelblaster.bench.directory import begin
from kernelblaster.bench.one_run import OneRun
from kernelblaster.bench.planning import lock_of
from kernelblaster.bench.records import Ended, PlannedRun, SuiteLock
from kernelblaster.bench.running import Bench
from kernelblaster.bench.variants import parse_variants
from kernelblaster.harness.records.readings import AS_WRITTEN
from kernelblaster.harness.suites.records import SuiteTask, SuiteTasks
from kernelblaster.nodes.records.plan import RunContext
from kernelblaster.tools.models.records import Budgets


class HereWorker:
    """Does runs in this process."""

    def __init__(self, directory: Path, lock: SuiteLock) -> None:
        self._directory, self._lock = directory, lock
        self._one: OneRun | None = None

    async def do(self, run: PlannedRun, watch: Any) -> Ended:
        self._one = OneRun(self._directory, self._lock, run)
        return await self._one.to_its_end(watch)

    def stop(self) -> None:
        if self._one is not None:
            self._one.stop()

    async def close(self) -> None:
        return


def planned(
    directory: Path,
    policies: str = "kernelblaster,minimal",
    names: tuple[str, ...] = ("one", "two"),
    seeds: tuple[int, ...] = (0,),
    evaluations: int = 4,
    **options: Any,
) -> SuiteLock:
    """Lay out a bench of tasks that only the text device can serve."""
    tasks = tuple(
        SuiteTask(name=name, source=f"# {name}\n", origin="here") for name in names
    )
    common = RunContext(
        device="simulated", gpu="H100", rollouts=1, steps=2,
        budgets=Budgets(evaluations=evaluations),
    )  # fmt: skip
    lock = lock_of(
        SuiteTasks(name="texts", origin="here", tasks=tasks), common,
        parse_variants(policies, common), seeds, AS_WRITTEN,
        **{"knowledge": "shared", **options},
    )  # fmt: skip
    begin(directory, lock, tasks)
    return lock


def done(directory: Path, lock: SuiteLock, workers: int = 1) -> list[tuple[str, str, Any]]:
    """Do all of a bench in this process; return what was told."""
    told: list[tuple[str, str, Any]] = []
    crew = [HereWorker(directory, lock) for _ in range(workers)]
    bench = Bench(
        directory, lock, crew, lambda kind, run, said: told.append((kind, run.place, said))
    )
    asyncio.run(bench.run())
    return told

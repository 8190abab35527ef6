"""Runs the corpus on the simulated GPU: kernels under two orders of warps, candidates whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from exploits import corpus as exploits
from simt_support import compile_ptx, execute

from kernelblaster.harness.devices.simulated.device import SimulatedDevice
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.record import Record
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.simt.ptx.parser import Module
from kernelblaster.harness.simt.run.candidate import HARMLESS
from kernelblaster.harness.simt.run.core import Report
from kernelblaster.harness.task.loading import load_task

from .corpus import Bug, launch_of, one_unit

SEEDS = (0, 1)
BUDGET = 2_000_000
"""Warp instructions after which a kernel of the corpus counts as endless."""


class Found(Record):
    """What the checks say of one kernel, its lines as in its own file."""

    reports: tuple[tuple[str, int | None, int | None], ...]
    """(kind, line, line of the other access), the first of each, in the order they were found."""
    told: tuple[str, ...]
    """The same in words."""
    agree: bool
    """Both orders of the warps left the same memory."""

    @property
    def faults(self) -> tuple[tuple[str, int | None, int | None], ...]:
        """Return the reports that fail a candidate."""
        return tuple(report for report in self.reports if report[0] not in HARMLESS)


class Unit:
    """All kernels of the corpus, compiled together."""

    def __init__(self, bugs: tuple[Bug, ...]) -> None:
        text, self._before = one_unit(bugs)
        self.module: Module = compile_ptx(text)

    def run(self, bug: Bug, side: str) -> Found:
        """Run `bug` or its `twin` under both orders."""
        launch = launch_of(bug)
        space = f"{side}_{bug.name}"
        mangled = f"N{len(space)}{space}{len(launch.kernel)}{launch.kernel}E"
        (name,) = [k for k, f in self.module.functions.items() if f.entry and mangled in k]
        reports: dict[tuple[str, int | None, int | None], str] = {}
        left = []
        for seed in SEEDS:
            result, buffers = execute(
                self.module, name, launch.grid, launch.block, *launch.values(),
                outputs=launch.outputs, shared=launch.shared, seed=seed, max_instructions=BUDGET,
            )  # fmt: skip
            left.append(buffers)
            for found in result.reports:
                key = (str(found.kind), self._line(space, found.line),
                       self._line(space, found.other_line))  # fmt: skip
                reports.setdefault(key, _told(found))
        pairs = zip(*left, strict=True)
        agree = all(np.allclose(a, b, rtol=1e-5, equal_nan=True) for a, b in pairs)
        return Found(reports=tuple(reports), told=tuple(reports.values()), agree=agree)

    def _line(self, space: str, line: int | None) -> int | None:
        return None if line is None else line - self._before[space]


def caught(bug: Bug, found: Found) -> tuple[bool, bool]:
    """Say whether the right kind came, and whether it and its like name only the marked lines."""
    same = [report for report in found.reports if report[0] == bug.report]
    named = {line for _, *lines in same for line in lines if line is not None}
    return bool(same), bool(named) and named <= bug.lines


async def verify_candidates(bugs: Sequence[Bug]) -> dict[str, StageResult]:
    """Return what verification says of each candidate, and of each `twin NAME`, two at a time."""
    device, slots = SimulatedDevice("H100"), asyncio.Semaphore(2)
    names = sorted({bug.task for bug in bugs})
    loaded = [load_task(exploits.FOLDER / "tasks" / f"{name}.py") for name in names]
    tasks = dict(zip(names, await asyncio.gather(*loaded), strict=True))

    async def verify(task: Task, source: str) -> StageResult:
        async with slots:
            return await device.verify(task, source)

    runs = {bug.name: verify(tasks[bug.task], bug.source) for bug in bugs}
    for bug in bugs:
        runs[f"twin {bug.name}"] = verify(tasks[bug.task], f"#define FIXED\n{bug.source}")
    return dict(zip(runs, await asyncio.gather(*runs.values()), strict=True))


def refused(bug: Bug, stage: StageResult) -> tuple[bool, bool]:
    """Say whether a candidate is refused as it should be, and at a marked line where there is one.

    A verdict on two runs that differ has no line.
    """
    kind = bug.report in (stage.outcome, *(found.kind for found in stage.diagnostics[:1]))
    return kind, not bug.lines or (kind and stage.diagnostics[0].line in bug.lines)


def _told(report: Report) -> str:
    place = f"block {report.block} thread {report.thread}"
    return f"{report.kind}: {place}: {report.detail} {report.buffer}; {report.instruction}"

"""Stop the run with interrupt(), its place saved: at a cap, without a model, for another host.

An interrupt's value is for people (Studio shows it): a plain resume looks once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from langgraph.types import interrupt

from ...harness.devices.deferred import ResultAwaited
from ...tools.models.budgets import read_budgets, require_time
from ...tools.models.pauses import Paused
from ...tools.workspace import Workspace, open_runs
from ..records import RunPlan
from .workspaces import opened

Value = TypeVar("Value")


async def budgeted(plan: RunPlan, ask: Callable[[], Awaitable[Value]]) -> Value:
    """Return what `ask` gives; where it cannot go on now, interrupt with the reason.

    The whole of `ask` runs again on resume: calls that were answered come from the ledger.
    """
    while True:
        try:
            return await ask()
        except Paused as paused:
            # Whoever resumes may be another process: it must find the directory free.
            await asyncio.to_thread(open_runs().finished, Path(plan.run))
            # Raises, until the run is resumed with a value; then all is tried once more.
            interrupt({paused.outcome: paused.reason})


async def within_time(plan: RunPlan) -> None:
    """Go on when device time and working time are below their caps; else interrupt."""

    async def look() -> None:
        async with opened(plan) as workspace:
            budgets = await asyncio.to_thread(read_budgets, workspace.directory)
            ledger = workspace.store.ledger
            await asyncio.to_thread(require_time, budgets, ledger, workspace.directory)

    await budgeted(plan, look)


async def awaited(
    plan: RunPlan, workspace: Workspace, ask: Callable[[], Awaitable[Value]]
) -> Value:
    """Return what `ask` gives; where it must come from elsewhere, note the job and interrupt.

    `jobs export` reads the job in run.sqlite, and the results come back through it too.
    """
    while True:
        try:
            return await ask()
        except ResultAwaited as waiting:
            job = waiting.job
            await asyncio.to_thread(workspace.store.jobs.ask, plan.run_id, job)
            # Raises, until the run is resumed with a value; then it is looked for once more.
            interrupt({"waits_for": job.id, "task": job.task.name, "kind": job.kind})

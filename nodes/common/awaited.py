"""Stop the run with interrupt() where a result must come from another host.

The job is noted in run.sqlite first: `jobs export` reads it there. The interrupt's value is for
people (Studio shows it); the results come through the store, so a plain resume goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from langgraph.types import interrupt

from ...harness.devices.deferred import ResultAwaited
from ...tools.workspace import Workspace
from ..records import RunPlan

Result = TypeVar("Result")


async def awaited(
    plan: RunPlan, workspace: Workspace, ask: Callable[[], Awaitable[Result]]
) -> Result:
    """Return what `ask` gives; where it must come from elsewhere, note the job and interrupt."""
    while True:
        try:
            return await ask()
        except ResultAwaited as waiting:
            job = waiting.job
            await asyncio.to_thread(workspace.store.jobs.ask, plan.run_id, job)
            # Raises, until the run is resumed with a value; then it is looked for once more.
            interrupt({"waits_for": job.id, "task": job.task.name, "kind": job.kind})

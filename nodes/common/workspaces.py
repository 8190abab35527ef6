"""The opened run that a node works with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from ...tools.workspace import Workspace, open_runs
from ..records.plan import RunPlan


@contextmanager
def workspace_of(plan: RunPlan) -> Iterator[Workspace]:
    """Give the run's workspace; opened where this process does not have it open yet.

    Raises:
        UserError: another process runs it, or something cannot be opened.
    """
    with open_runs().using(
        Path(plan.run), plan.device, plan.gpu, plan.knowledge, plan.ablation
    ) as workspace:
        yield workspace


@asynccontextmanager
async def opened(plan: RunPlan) -> AsyncIterator[Workspace]:
    """Do what `workspace_of` does without blocking the event loop."""
    using = workspace_of(plan)
    if open_runs().has(Path(plan.run)):
        workspace = using.__enter__()
    else:
        workspace = await asyncio.to_thread(using.__enter__)
    try:
        yield workspace
    finally:
        using.__exit__(None, None, None)

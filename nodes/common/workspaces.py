"""Open a run's workspace from an async node without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ...tools.workspace import Workspace
from ..records import RunPlan


@asynccontextmanager
async def opened(plan: RunPlan) -> AsyncIterator[Workspace]:
    """Open the plan's workspace in a thread, and close it there too."""
    workspace = await asyncio.to_thread(Workspace, Path(plan.run_directory), plan.device, plan.gpu)
    try:
        yield workspace
    finally:
        await asyncio.to_thread(workspace.close)

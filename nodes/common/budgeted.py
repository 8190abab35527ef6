"""Stop the run with interrupt() where a cap is reached or a model cannot be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from langgraph.types import interrupt

from ...tools.models.budgets import read_budgets, require_time
from ...tools.models.pauses import Paused
from ..records import RunPlan
from .workspaces import opened

Value = TypeVar("Value")


async def budgeted(ask: Callable[[], Awaitable[Value]]) -> Value:
    """Return what `ask` gives; where it cannot go on now, interrupt with the reason.

    The whole of `ask` runs again on resume: calls that were answered come from the ledger.
    """
    while True:
        try:
            return await ask()
        except Paused as paused:
            # Raises, until the run is resumed with a value; then all is tried once more.
            interrupt({paused.outcome: paused.reason})


async def within_time(plan: RunPlan) -> None:
    """Go on when device time and working time are below their caps; else interrupt."""
    async with opened(plan) as workspace:

        def look() -> None:
            budgets = read_budgets(workspace.directory)
            require_time(budgets, workspace.store.ledger, workspace.directory)

        await budgeted(lambda: asyncio.to_thread(look))

"""Stop the run with interrupt() where a cap is reached: resumed with a higher one, it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from langgraph.types import interrupt

from ...tools.models.budgets import BudgetReached, read_budgets, require_time
from ..records import RunPlan
from .workspaces import opened

Value = TypeVar("Value")


async def budgeted(ask: Callable[[], Awaitable[Value]]) -> Value:
    """Return what `ask` gives; where a cap keeps it from asking, interrupt with the reason.

    The whole of `ask` runs again on resume: calls that were answered come from the ledger.
    """
    while True:
        try:
            return await ask()
        except BudgetReached as reached:
            # Raises, until the run is resumed with a value; then the cap is looked at once more.
            interrupt({"budget_reached": reached.reason})


async def within_time(plan: RunPlan) -> None:
    """Go on when device time and working time are below their caps; else interrupt."""
    async with opened(plan) as workspace:

        def look() -> None:
            budgets = read_budgets(workspace.directory)
            require_time(budgets, workspace.store.ledger, workspace.directory)

        await budgeted(lambda: asyncio.to_thread(look))

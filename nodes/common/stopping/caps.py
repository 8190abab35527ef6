"""What a cap does to the search: it stops with its place saved, or it ends with the best so far."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from ....memory.run.run_store import RunStore
from ....tools.models.budgets import read_budgets, require_evaluation, require_room
from ....tools.workspace import Workspace
from ...records.plan import RunPlan
from ..workspaces import opened
from .interrupts import SearchEnds, budgeted
from .standstill import rollouts_at_hand

LEAST_DEPTH = 2
"""Evaluations that each rollout has before there is another: two that try a first step each found
less on H100s than one that goes on from its first (docs/results.md)."""


async def search_over(plan: RunPlan) -> str:
    """Return why nothing more is to be tried, empty where the search goes on.

    In a run that pauses at its caps this interrupts instead, and returns when there is room again.
    """

    def looked(workspace: Workspace) -> str:
        store, directory = workspace.store, workspace.directory
        if plan.on_budget == "finish" and (ended := store.ledger.search_ended()):
            return ended
        require_room(read_budgets(directory), store, directory)
        return ""

    async def look() -> str:
        async with opened(plan) as workspace:
            return await asyncio.to_thread(looked, workspace)

    try:
        return await budgeted(plan, look)
    except SearchEnds as over:
        return over.reason


async def evaluation_allowed(plan: RunPlan, key: str) -> None:
    """Return when a source may be evaluated, by the key of its evaluation.

    In a run that pauses at a cap of evaluations this interrupts where there is no room. What
    parallel rollouts have begun counts, so that together they make no more.
    """
    if plan.on_budget == "finish":
        return  # Each rollout has its own share.
    begun = rollouts_at_hand().begun

    async def look() -> None:
        async with opened(plan) as workspace:
            budgets, made = await asyncio.to_thread(
                lambda: (read_budgets(workspace.directory), workspace.store.evaluated())
            )
            under_way = begun - made
            if key not in made and key not in under_way:
                done = len(made) + len(under_way)
                require_evaluation(budgets, done, workspace.directory)
        begun.add(key)

    await budgeted(plan, look)


async def newly_evaluated(plan: RunPlan, sources: Collection[str], before: int) -> int:
    """Return how many sources were not evaluated before the iteration.

    What a parallel rollout has evaluated meanwhile is new too: who is faster is no matter.

    Args:
        plan: of the run.
        sources: sha256 of what was written.
        before: sources that were evaluated before the iteration.
    """
    async with opened(plan) as workspace:
        known = await asyncio.to_thread(workspace.store.first_sources, before)
    return len(set(sources) - known)


def search_capped(plan: RunPlan, store: RunStore) -> str:
    """Return which cap ended the search of a run; empty where none did."""
    cap = plan.budgets.evaluations
    if plan.on_budget == "finish" and cap is not None and store.count() >= cap:
        return f"the cap of {cap} evaluations is reached"
    return store.ledger.search_ended()


def evaluations_left(plan: RunPlan, before: int) -> int | None:
    """Return how many sources may still be evaluated after so many; None where no cap ends it."""
    cap = plan.budgets.evaluations
    if plan.on_budget != "finish" or cap is None:
        return None
    return max(0, cap - before)


def rollouts_within(left: int, plan: RunPlan) -> int:
    """Return how many rollouts an iteration has where so many evaluations are left."""
    return max(1, min(plan.rollouts, left // min(plan.steps, LEAST_DEPTH)))


def share_of(left: int, parts: int, number: int) -> int:
    """Return the part that the `number`th of so many parallel rollouts has in what is left.

    Each has its own, so that what one does does not depend on how fast the others are.
    """
    return left // parts + (number < left % parts)

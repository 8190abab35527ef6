"""Stop the run with interrupt(), its place saved: at a cap, without a model, for another host.

An interrupt's value is a question for people (Studio shows it). What is given on resume is taken,
where it is understood; a plain resume looks once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from ....harness.devices.deferred import ResultAwaited
from ....harness.devices.job_records import counted, parse_results
from ....harness.errors import UserError, in_shell
from ....memory.run.directory import how_to_go_on
from ....memory.run.exchange import import_results
from ....tools.models.budgets import raise_budgets
from ....tools.models.pauses import BudgetReached, Paused
from ....tools.workspace import Workspace, open_runs
from ...records.plan import RunPlan
from ..workspaces import opened
from .questions import JobsQuestion, PauseQuestion, Question, cost_of
from .standstill import Rollouts, rollouts_at_hand

Value = TypeVar("Value")

JOBS_SHOWN = 20
"""In a question: the others are in run.sqlite."""


class SearchEnds(Exception):
    """A cap is reached in a run that ends its search there."""

    def __init__(self, reached: BudgetReached) -> None:
        super().__init__(reached.told)
        self.reason = reached.told


async def budgeted(plan: RunPlan, ask: Callable[[], Awaitable[Value]]) -> Value:
    """Return what `ask` gives; where it cannot go on now, interrupt with the reason.

    The whole of `ask` runs again on resume: calls that were answered come from the ledger.

    Raises:
        SearchEnds: a cap is reached, and the run ends its search there; that is noted.
    """
    hint, rollouts = "", rollouts_at_hand()
    while True:
        answers = rollouts.answers
        try:
            return await ask()
        except Paused as paused:
            if plan.on_budget == "finish" and isinstance(paused, BudgetReached):
                async with opened(plan) as workspace:
                    end_search = workspace.store.ledger.end_search
                    await asyncio.to_thread(end_search, paused.told)
                raise SearchEnds(paused) from None
            async with opened(plan) as workspace:
                question = await asyncio.to_thread(_pause_question, workspace, paused, hint)
            need = question.answers[0]
            hint = await _ask(plan, rollouts, answers, need, question, _take_caps)


async def awaited(
    plan: RunPlan, workspace: Workspace, ask: Callable[[], Awaitable[Value]]
) -> Value:
    """Return what `ask` gives; where it must come from elsewhere, note the job and interrupt.

    `jobs export` reads the job in run.sqlite, and the results come back through it too, or are
    what the run is resumed with.
    """
    hint, rollouts = "", rollouts_at_hand()
    while True:
        answers = rollouts.answers
        try:
            return await ask()
        except ResultAwaited as waiting:
            job = waiting.job
            await asyncio.to_thread(workspace.store.jobs.ask, plan.run_id, job)
            question = await asyncio.to_thread(_jobs_question, workspace, hint)
            hint = await _ask(plan, rollouts, answers, "jobs", question, _take_results)


async def _ask(
    plan: RunPlan,
    rollouts: Rollouts,
    since: int,
    need: str,
    question: Question,
    take: Callable[[RunPlan, Any], str],
) -> str:
    """Have the run stop with a question; return when all is to be tried once more.

    Parallel rollouts that need the same ask once. What is returned says why an answer was not
    understood; empty where it was.

    Raises:
        GraphInterrupt: there is no answer yet, and no rollout can go on without one.
    """
    # Who only reads runs comes by this module, and needs no second for it.
    from langgraph.errors import GraphInterrupt
    from langgraph.types import interrupt

    try:
        answer = interrupt(question.model_dump(mode="json"))
    except GraphInterrupt as unanswered:
        ((asked,),) = unanswered.args
        shared = await rollouts.shared(need, asked, since)
        if shared is None:
            return ""
        # Whoever resumes may be another process: it must find the directory free.
        await asyncio.to_thread(open_runs().finished, Path(plan.run))
        # Under one id, so that one answer is asked for; what the others raised before is replaced.
        raise GraphInterrupt((shared,)) from None
    hint = await asyncio.to_thread(take, plan, answer)
    rollouts.answered()
    return hint


def _pause_question(workspace: Workspace, paused: Paused, hint: str) -> PauseQuestion:
    capped = isinstance(paused, BudgetReached)
    return PauseQuestion(
        kind="budget_reached" if capped else "model_unavailable",
        run=str(workspace.directory),
        asks="May the run use more?" if capped else "Can the model be asked again?",
        cost=cost_of(workspace),
        answers=(f'{{"{paused.cap}": N}}' if isinstance(paused, BudgetReached) else "anything",),
        reason=paused.reason,
        hint=hint,
    )


def _take_caps(plan: RunPlan, answer: Any) -> str:
    """Raise the caps that an answer names; anything else is no more than a reason to look again."""
    if not isinstance(answer, dict):
        return ""
    directory = Path(plan.run)
    try:
        raise_budgets(directory, plan.models, answer)
    except UserError as error:
        return str(error)
    return ""


def _jobs_question(workspace: Workspace, hint: str) -> JobsQuestion:
    waiting = workspace.store.jobs.waiting()
    export = f"kernelblaster jobs export {in_shell(workspace.directory)} -o jobs.json"
    go_on = how_to_go_on(workspace.directory, "--results results.json", "the JSON of results.json")
    return JobsQuestion(
        run=str(workspace.directory),
        asks=f"{counted(len(waiting))} must be run on the GPU host: {export}; then {go_on}",
        cost=cost_of(workspace),
        answers=("the JSON of a file of `jobs run`", "anything, once results were imported"),
        jobs=len(waiting),
        first=tuple(job.id for job in waiting[:JOBS_SHOWN]),
        hint=hint,
    )


def _take_results(plan: RunPlan, answer: Any) -> str:
    """Store the results that an answer holds; anything else is a reason to look again."""
    if not isinstance(answer, dict):
        return ""
    origin = "what was given on resume"
    try:
        import_results(Path(plan.run), parse_results(answer, origin), origin)
    except UserError as error:
        return str(error)
    return ""

"""A run is one line of steps: what is taken up from an older checkpoint, edited, is another run.

Each node of the outer graph notes in the run's journal what it read and wrote. Where a node stands
at a place again and reads the same, a killed process or a person repeats the past, and the stores
give the same answers; where it reads something else, a fork begins: it gets a directory and an id
of its own, with what the common past evaluated, and the first run stays what it was.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from ....harness.errors import UserError
from ....harness.process.children import off_loop
from ....harness.records.identity import sha256_of_json
from ....memory.run.directory import ARTIFACTS, change_reference_seconds, reference_seconds_of
from ....memory.run.journal import Entry
from ....memory.run.run_store import RunStore
from ....tools.models.budgets import read_budgets, write_budgets
from ....tools.progress import report_progress
from ....tools.workspace import Workspace, open_runs
from ...common.stopping.approval import approvals_of, change_approvals
from ...common.workspaces import workspace_of
from ...records.plan import RunPlan
from .begin import fork_directory, stored_plan

Node = Callable[..., Awaitable[dict[str, Any]]]
NOT_READ = ("start_point", "rollout")
"""What the parts of a place do not have in common."""
OF_THE_DIRECTORY = {
    "run", "run_id", "forked_from", "budgets", "reference_seconds", "approve", "fresh", "shared",
}  # fmt: skip
"""What of a plan says where the run lies, what it may use and whom it asks, not what it does."""


def of_one_line(node: Node, *, ends: bool = False) -> Node:
    """Return a node of the outer graph that keeps to its run's line, or begins another run.

    Args:
        node: takes a state with `plan`; beside others of its place it has a `rollout`.
        ends: it closes the run, so that nothing is noted after it.
    """
    name = node.__name__

    @functools.wraps(node)
    async def kept(state: Mapping[str, Any], *rest: Any, **named: Any) -> dict[str, Any]:
        vetoed = sum(each.vetoed for each in (state.get("soft_reviews") or {}).values())
        turn = state.get("round", state.get("iteration", 0))
        place = f"{name} {turn} {vetoed}"
        read = _sum_of(state)
        part = state.get("rollout", 0)
        plan = state["plan"]
        try:
            plan, done = await off_loop(_taken_up, plan, place, part, read)
            if done is not None and not ends:
                return done
            if plan.run_id != state["plan"].run_id:
                report_progress("fork", run=plan.run, forked_from=plan.forked_from)
            written = await node({**state, "plan": plan}, *rest, **named)
            if not ends:
                entry = Entry(
                    place=place, part=part, node=name, read_sha256=read,
                    written=to_jsonable_python({"plan": plan} | written),
                )  # fmt: skip
                await off_loop(note, plan, entry)
        except asyncio.CancelledError:
            open_runs().abandon(Path(plan.run))  # Who goes on may be another process.
            raise
        return ({"plan": plan} if plan != state["plan"] else {}) | written

    return kept


def note(plan: RunPlan, entry: Entry) -> None:
    """Write an entry into the run's journal."""
    with workspace_of(plan) as workspace:
        workspace.store.journal.note(entry)


def _sum_of(state: Mapping[str, Any]) -> str:
    read = {key: value for key, value in state.items() if key not in NOT_READ}
    read["plan"] = state["plan"].model_dump(mode="json", exclude=OF_THE_DIRECTORY)
    return sha256_of_json(to_jsonable_python(read))


def _taken_up(
    plan: RunPlan, place: str, part: int, read: str
) -> tuple[RunPlan, dict[str, Any] | None]:
    """Return the plan of the run that a node works for, and what it wrote if it has ended before.

    The run is the state's own, or a fork of it.
    """
    with workspace_of(plan) as workspace:
        journal = workspace.store.journal
        if journal.read_at(place) in (None, read):
            _edited(workspace, plan)
            return plan, journal.written_at(place, part)
        with open_runs().one_at_a_time():
            fork = _forked(workspace, plan, place, read)
    open_runs().finished(Path(plan.run))
    with workspace_of(fork) as workspace:
        return fork, workspace.store.journal.written_at(place, part)


def _edited(workspace: Workspace, plan: RunPlan) -> None:
    """Let what a person changed in the state's plan hold outside of the graph too."""
    stored = stored_plan(workspace.directory)
    if plan == stored:
        return
    if plan.budgets != stored.budgets:
        write_budgets(workspace.directory, plan.budgets)
    if plan.approve != stored.approve:
        change_approvals(workspace.directory, plan.approve)
    if plan.reference_seconds != stored.reference_seconds and plan.reference_seconds:
        change_reference_seconds(workspace.directory, plan.reference_seconds)
    workspace.held.write_plan(plan.model_dump(mode="json"))


def _as_it_stands(workspace: Workspace, plan: RunPlan) -> RunPlan:
    """Return a plan with what `resume` changed since of caps and questions, where no edit did."""
    stored = stored_plan(workspace.directory)
    changed: dict[str, Any] = {}
    if plan.budgets == stored.budgets:
        changed["budgets"] = read_budgets(workspace.directory)
    if plan.approve == stored.approve:
        changed["approve"] = approvals_of(stored)
    if plan.reference_seconds == stored.reference_seconds:
        seconds = reference_seconds_of(workspace.directory)
        changed["reference_seconds"] = seconds or plan.reference_seconds
    return plan.model_copy(update=changed)


def _forked(workspace: Workspace, plan: RunPlan, place: str, read: str) -> RunPlan:
    """Return the plan of the fork that begins here, made where it is not there yet."""
    journal = workspace.store.journal
    known = journal.fork_of(place, read)
    if known is not None:
        try:
            there = stored_plan(known)
        except UserError:
            there = None  # Somebody removed it.
        if there is not None:
            return there

    def fill(made: Path) -> None:
        workspace.store.copy_to(made / "run.sqlite")
        workspace.artifacts.copy_to(made / ARTIFACTS)
        with RunStore(made / "run.sqlite") as store:
            store.journal.forget_from(place)

    fork = fork_directory(_as_it_stands(workspace, plan), fill)
    journal.note_fork(place, read, Path(fork.run))
    return fork


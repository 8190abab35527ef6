"""Report: write best.cu, report.txt and result.json into the run directory.

Reads everything the run came to; writes result, in short: the file holds it whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from ....harness.bound.speed_of_light import SpeedOfLight, score, speed_of_light
from ....harness.errors import UserError, unwritten
from ....harness.files import read_json, write_atomically
from ....harness.gpus import known_gpu
from ....harness.records.evaluations import DeviceIdentity
from ....memory.records.evidence import Step
from ....memory.run.claim_book import TriedClaim
from ....memory.run.ledger import RoleTotals, Totals
from ....tools.progress import report_progress
from ....tools.workspace import open_runs
from ...common.history.steps import path_to
from ...common.policies import RULES
from ...common.stopping.caps import search_capped
from ...common.stopping.until import end_of_search
from ...common.workspaces import workspace_of
from ...records.accounts import StepAuthors
from ...records.kernels import KernelPoint, KnownStart
from ...records.plan import RunPlan
from ...records.result import Confirmation, RunResult, ShapeCheck
from ...records.task import TaskSummary
from .circumstances import baselines_of, cycles_of, facts_of, notes_of
from .keep_kernel import keep_kernel
from .report_text import report_text


class Reads(TypedDict):
    """What this node reads."""

    plan: RunPlan
    summary: TaskSummary
    initial: KernelPoint
    known: NotRequired[KnownStart | None]
    best: NotRequired[KernelPoint]
    confirmation: Confirmation
    shapes: NotRequired[tuple[ShapeCheck, ...]]


async def report(state: Reads) -> dict[str, Any]:
    """Write the run's results; writing them again gives the same files."""
    result = await asyncio.to_thread(_report, state)
    await asyncio.to_thread(open_runs().finished, Path(result.run))
    report_progress("result", **result.model_dump(mode="json"))
    return {"result": result.in_short()}


def stored_result(directory: Path) -> RunResult | None:
    """Return the whole result of a run, or None where there is no file of one."""
    try:
        said = read_json(directory / "result.json", "a result", "resume the run")
        return RunResult.model_validate(said)
    except (OSError, ValueError, UserError):
        return None


def _report(state: Reads) -> RunResult:
    plan, confirmation = state["plan"], state["confirmation"]
    winner, known = confirmation.point, state.get("known") or KnownStart()
    directory = Path(plan.run)
    with workspace_of(plan) as workspace:
        steps = workspace.store.replay.steps()
        path = path_to(winner.source_sha256, steps)
        lessons = workspace.knowledge.written_lessons(plan.run_id)
        source = workspace.artifacts.get_text(winner.source_sha256)
        facts = facts_of(workspace.store, winner.evaluation_key)
        gpu = known_gpu(plan.gpu)
        bound = speed_of_light(workspace.task(state["summary"].artifact), gpu) if gpu else None
        spent = workspace.store.ledger.totals()
        spending = workspace.store.ledger.by_role()
        result = RunResult(
            outcome=_outcome(confirmation),
            task=state["summary"].name,
            device=plan.device,
            policy=plan.policy,
            gpu=plan.gpu,
            provenance=state["initial"].provenance,
            initial_us=state["initial"].microseconds,
            best_us=confirmation.microseconds,
            **_began(known, state["initial"]),
            initial_cycles=cycles_of(workspace.store, state["initial"].evaluation_key),
            best_cycles=cycles_of(workspace.store, winner.evaluation_key),
            gain=confirmation.gain,
            gain_ci=confirmation.gain_interval,
            baselines=baselines_of(facts),
            bound=bound,
            score=_score(confirmation.microseconds, bound, state["initial"], baselines_of(facts)),
            ended=end_of_search(plan, state["summary"], state.get("best", winner))
            or search_capped(plan, workspace.store),
            shapes=state.get("shapes", ()),
            evaluations=workspace.store.count(),
            taken_over=workspace.store.count_taken_over(),
            outcomes=workspace.store.outcomes(),
            model_calls=spent.calls,
            tokens=spent.tokens,
            money=spent.money,
            techniques=tuple(step.technique for step in path),
            path=path,
            bottleneck_before=state["initial"].bottleneck,
            bottleneck_after=winner.bottleneck,
            lessons=tuple(item.id for item in lessons),
            lesson_authors=tuple(item.author for item in lessons),
            models={role: plan.models.model_of(role) for role in RULES[plan.policy].roles},
            initial_author=state["initial"].author,
            steps=tuple(_authors(step) for step in steps if step.iteration >= 0),
            notes=(
                *plan.without,
                *((confirmation.reason,) if confirmation.reason else ()),
                *known.passed_over,
                *notes_of(facts),
                *_elsewhere(workspace.store.jobs.measured_by()),
                *_spending(spent),
                *_stood_in(spending),
                *_claimed(workspace.store.claims.all()),
            ),
            best_source=str(directory / "best.cu"),
            source=source,
            run=str(directory),
        )
        keep_kernel(
            workspace, plan, state["summary"], state["initial"], confirmation, path, known
        )
    write_file(directory / "best.cu", source)
    write_file(directory / "report.txt", report_text(result, steps, lessons, spending))
    write_file(directory / "result.json", result.model_dump_json(indent=2) + "\n")
    return result


def _began(known: KnownStart, initial: KernelPoint) -> dict[str, Any]:
    """Return what a result says of where the search began, besides at the initial kernel."""
    point = known.point
    if point is None or point.microseconds > initial.microseconds:
        return {}
    return {"start_us": point.microseconds, "began_with": known.told}


def _score(
    microseconds: float,
    bound: SpeedOfLight | None,
    initial: KernelPoint,
    baselines: Mapping[str, float],
) -> float | None:
    times = [baselines[name] for name in ("eager_us", "compile_us") if name in baselines]
    base = min(times, default=initial.microseconds)
    return None if bound is None else score(microseconds, bound.microseconds, base)


def _authors(step: Step) -> StepAuthors:
    return StepAuthors(
        iteration=step.iteration,
        rollout=step.rollout,
        step=step.step,
        technique=step.technique,
        state=step.state_author,
        choice=step.choice_author,
        source=step.author,
    )


def _elsewhere(device: DeviceIdentity | None) -> tuple[str, ...]:
    return (f"every result comes from another host: {device}",) if device else ()


def _spending(spent: Totals) -> tuple[str, ...]:
    notes = []
    if spent.unfinished:
        notes.append(
            f"{spent.unfinished} of {spent.calls} model calls ended without a reply and may have "
            "been paid: they count with what was expected of them"
        )
    if spent.unpriced and spent.money is not None:
        notes.append(f"{spent.unpriced} of {spent.calls} model calls have no price")
    return tuple(notes)


def _stood_in(spending: Sequence[RoleTotals]) -> tuple[str, ...]:
    return tuple(
        f"{each.model} did not answer {each.unanswered} "
        f"{'call' if each.unanswered == 1 else 'calls'} as {each.role}: "
        "the built-in reasoner stood in"
        for each in spending
        if each.unanswered
    )


def _claimed(claims: Sequence[TriedClaim]) -> tuple[str, ...]:
    """Return what reviewers found by inputs that were run, and how often they were wrong."""
    found = {each.claim.id: each for each in reversed(claims) if each.confirmed}
    notes = [
        f"a case since a reviewer ({each.author}) found a kernel wrong there: {each.claim} "
        f"({each.found})"
        for each in reversed(found.values())
    ]
    refuted = sum(not each.confirmed for each in claims)
    if refuted:
        notes.append(
            f"{refuted} {'objection was' if refuted == 1 else 'objections were'} dropped, for "
            "kernel and PyTorch agree on the input that was named, or the rules do not allow it"
        )
    return tuple(notes)


def _outcome(confirmation: Confirmation) -> str:
    if not confirmation.confirmed:
        return "unconfirmed"
    # An improvement only when the interval says so.
    return "improved" if confirmation.gain_interval[0] > 1.0 else "not_improved"


def write_file(path: Path, text: str, remedy: str = "then resume the run") -> None:
    """Write a file whole or not at all.

    Args:
        path: of the file.
        text: what it holds.
        remedy: what to do where it cannot be written, beside what is wrong with the place.

    Raises:
        UserError: the disk is full or the directory is not writable.
    """
    try:
        write_atomically(path, text.encode(), handed_on=True)
    except OSError as error:
        raise UserError(f"{unwritten(path, error)}, {remedy}") from error

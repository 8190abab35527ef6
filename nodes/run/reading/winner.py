"""What a finished run announced, as it is exported: its directory is read, and not held."""

from __future__ import annotations

from pathlib import Path

from ....harness.errors import UserError, in_shell
from ....harness.records.tasks import Task
from ....harness.task.interface import interface_now
from ....harness.task.unseen import changed_dimensions, unseen_tasks_now
from ....memory.run.artifacts import ArtifactStore
from ....memory.run.directory import ARTIFACTS
from ....memory.run.run_store import RunStore
from ....tools.exporting.winner import Winner
from ...records.plan import RunPlan
from ...records.result import RunResult
from ...records.task import TaskSummary
from ..beginning.begin import stored_plan
from ..ending.report import stored_result


def winner_of(run: Path) -> Winner:
    """Return the kernel that a run announced, with its task.

    Raises:
        UserError: there is no run, it is not finished, or its task cannot be read.
    """
    plan, result = stored_plan(run), stored_result(run)
    if result is None:
        raise UserError(f"{run} is not finished; go on with: kernelblaster resume {in_shell(run)}")
    with RunStore(run / "run.sqlite", copied=True) as store:
        device = store.jobs.measured_by() or plan.identity
        loaded = next((each for each in store.journal.entries() if each.node == "load_task"), None)
    if loaded is None:
        raise UserError(f"{run} was made by an earlier version; run its task again to export it")
    summary = TaskSummary.model_validate(loaded.written["summary"])
    text = ArtifactStore(run / ARTIFACTS).get_text(summary.artifact)
    task = Task.model_validate_json(text)
    return Winner(
        task=task,
        interface=interface_now(task),
        source=result.source,
        device=device,
        run=plan.run_id,
        facts=tuple(_facts(result)),
        others=_others(plan, result, task),
    )


def _facts(result: RunResult) -> list[str]:
    low, high = result.gain_ci
    facts = [
        f"It takes {result.best_us:.2f} us ({result.provenance}), {result.gain:.2f}x "
        f"({low:.2f} to {high:.2f}) the initial kernel: {result.outcome.replace('_', ' ')}."
    ]
    if "speedup" in result.baselines:
        facts.append(f"It is {result.baselines['speedup']:.2f}x PyTorch's faster one.")
    if result.provenance == "simulated":
        facts.append("Verified on a simulated GPU: no real one has run it.")
    return [*facts, *(f"Note: {note}." for note in result.notes)]


def _others(plan: RunPlan, result: RunResult, task: Task) -> tuple[Task, ...]:
    """Return the task at the other shapes at which the winner holds."""
    held = [each.dimensions for each in result.shapes if each.holds]
    if not held:
        return ()
    measured = plan.identity.kind != "simulated"
    drawn = unseen_tasks_now(task, plan.shapes, plan.seed, measured)
    return tuple(other for other in drawn if changed_dimensions(task, other) in held)

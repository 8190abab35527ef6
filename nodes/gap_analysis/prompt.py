"""What performance-gap analysis shows a model: gaps, steps, what they moved and changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...harness.records.evaluations import Evaluation
from ...harness.records.profiles import Profile
from ...harness.records.tasks import Task
from ...memory.knowledge.states.signature import signature_of
from ...memory.records.evidence import Step
from ...tools.models.records import Message
from ...tools.workspace import Workspace
from ..common.prompts.changes import change_text
from ..common.prompts.iteration import (
    alike,
    diffs_text,
    gap_lines,
    kernels_of,
    moved_text,
    steps_text,
)
from ..common.prompts.render import render
from ..common.prompts.subject import task_context
from ..records.gradient import GapAnalysis
from ..records.plan import RunPlan
from ..records.task import TaskSummary


def gap_messages(
    workspace: Workspace,
    plan: RunPlan,
    summary: TaskSummary,
    analysis: GapAnalysis,
    steps: Sequence[Step],
    evaluated: str,
) -> tuple[Message, ...]:
    """Return the prompt of gap analysis; `evaluated` is what policy evaluation says in sum."""
    return render(
        "gap_analysis",
        plan.models.context_of("gap_analysis"),
        evaluated=evaluated,
        **gap_context(workspace, summary, analysis, steps),
    )


def gap_context(
    workspace: Workspace, summary: TaskSummary, analysis: GapAnalysis, steps: Sequence[Step]
) -> dict[str, Any]:
    """Return what the template speaks of, less what policy evaluation says."""
    task = workspace.task(summary.artifact)
    return task_context(task, workspace.measured_by) | {
        "gaps": gap_lines(analysis.gaps, steps),
        "steps": steps_text(steps, {gap.state_id: gap.state_name for gap in analysis.gaps}),
        "moved": _moved(workspace, task, steps),
        "diffs": _diffs(workspace, steps),
    }


def profiles_around(
    workspace: Workspace, task: Task, step: Step
) -> tuple[Profile | None, Profile | None]:
    """Return the profiles of a step's kernels before and after, where there are any."""
    before, after = _evaluations(workspace, task, step)
    return before.profile if before else None, after.profile if after else None


def _evaluations(
    workspace: Workspace, task: Task, step: Step
) -> tuple[Evaluation | None, Evaluation | None]:
    source = workspace.artifacts.get_text(step.parent_sha256)
    return (
        workspace.store.get(workspace.evaluator.key(task, source)),
        workspace.store.get(step.evaluation_key) if step.evaluation_key else None,
    )


def _moved(workspace: Workspace, task: Task, steps: Sequence[Step]) -> str:
    """Return, for each step that passed, what it did to the time and to the profile's figures."""
    lines = []
    for label, step in alike(steps):
        before, after = _evaluations(workspace, task, step)
        if before and after and before.profile and after.profile:
            words = moved_text(
                signature_of(before.profile).values, signature_of(after.profile).values
            )
            told = "; ".join(part for part in (change_text(before, after), words) if part)
            lines.append(f"- {label}: {told}")
    return "\n".join(lines)


def _diffs(workspace: Workspace, steps: Sequence[Step]) -> str:
    """Return what each step changed in the code, those first that missed their expectation most."""
    kernels, read = kernels_of(steps), workspace.artifacts.get_text
    ranked = sorted(
        alike(steps),
        key=lambda pair: -abs((pair[1].log_gain or 0.0) - pair[1].expected_log_gain),
    )
    return diffs_text(
        [
            (
                f"{label}, {kernels[step.parent_sha256]} -> {kernels[str(step.child_sha256)]}",
                read(step.parent_sha256),
                read(str(step.child_sha256)),
            )
            for label, step in ranked
        ]
    )

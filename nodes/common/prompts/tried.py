"""What was tried on a kernel and what led to it: outcomes, and what moved in the profiles."""

from __future__ import annotations

from collections.abc import Sequence

from ....harness.records.evaluations import Evaluation
from ....harness.records.tasks import Task
from ....memory.knowledge.states.signature import signature_of
from ....memory.records.evidence import Step
from ....tools.wording.experience import tried_text
from ....tools.workspace import Workspace
from .changes import change_text
from .iteration import moved_text

MOST_ADVICE = 2
"""Sentences of the profiler on a kernel that was tried, whose profile no prompt shows."""
LONGEST_ADVICE = 200
"""Characters of one."""


def tried_on(
    workspace: Workspace, steps: Sequence[Step], source_sha256: str, evaluation: Evaluation
) -> str:
    """Return what was tried on a kernel, with what moved and what the profiler advised after it.

    Args:
        workspace: of the run.
        steps: those that may be spoken of.
        source_sha256: of the kernel.
        evaluation: of the kernel.
    """

    def more(step: Step) -> str:
        child = workspace.store.get(step.evaluation_key) if step.evaluation_key else None
        return "" if child is None else _told(evaluation, child, advice=True)

    return tried_text(steps, source_sha256, more)


def came_by(
    workspace: Workspace, task: Task, steps: Sequence[Step], child: Evaluation
) -> str:
    """Return what moved in the step that made a kernel; empty for the first kernel."""
    made = next(
        (
            step
            for step in steps
            if step.child_sha256 == child.source_sha256 and step.microseconds_after is not None
        ),
        None,
    )
    if made is None:
        return ""
    parent = workspace.artifacts.get_text(made.parent_sha256)
    before = workspace.store.get(workspace.evaluator.key(task, parent))
    moved = "" if before is None else _told(before, child, advice=False)
    return f"What {made.technique} moved: {moved}." if moved else ""


def _told(before: Evaluation, after: Evaluation, *, advice: bool) -> str:
    """Return what moved between two kernels' profiles, and the advice on the second."""
    parts = [change_text(before, after)]
    if before.profile is not None and after.profile is not None:
        signatures = signature_of(before.profile).values, signature_of(after.profile).values
        parts.append(moved_text(*signatures))
        if advice:
            lines = after.profile.dominant.advice[:MOST_ADVICE]
            parts += [f"advice: {_short(line)}" for line in lines]
    return "; ".join(part for part in parts if part)


def _short(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= LONGEST_ADVICE else line[:LONGEST_ADVICE].rsplit(" ", 1)[0] + " ..."

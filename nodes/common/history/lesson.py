"""Writes at once what need not wait for parameter update: a lesson, a row that is overturned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ....memory.records.evidence import Overturned, Step
from ....memory.records.lessons import Lesson, LessonKind
from ....memory.records.update import KnowledgeUpdate
from ....tools.workspace import Workspace
from ...records.plan import RunPlan
from ...records.task import TaskSummary
from ..policies import reads_knowledge
from ..workspaces import workspace_of
from .steps import path_to


def write_lesson(
    plan: RunPlan,
    summary: TaskSummary,
    text: str,
    *,
    kind: LessonKind,
    author: str,
    iteration: int,
    technique: str | None = None,
    state: str | None = None,
) -> None:
    """Write a lesson learned on the run's task; writing it again changes nothing.

    A policy that reads no knowledge base writes none.
    """
    if not reads_knowledge(plan):
        return
    with workspace_of(plan) as workspace:
        lesson = Lesson(
            text=text,
            kind=kind,
            technique=technique,
            state=state,
            op_class=summary.op_class,
            device_kind=workspace.measured_by.kind,
            author=author,
            run=plan.run_id,
            iteration=iteration,
        )
        workspace.knowledge.apply_update(
            KnowledgeUpdate(run=plan.run_id, iteration=iteration, lessons=(lesson,))
        )


def write_veto(
    plan: RunPlan, summary: TaskSummary, source_sha256: str, why: str, author: str
) -> None:
    """Write down that a kernel which passes every check may not be announced: a failure, a lesson.

    Args:
        plan: of the run.
        summary: of its task.
        source_sha256: of the kernel.
        why: `vetoed by ...: REASON`.
        author: who decided.
    """
    with workspace_of(plan) as workspace:
        steps = workspace.store.replay.steps()
        overturn(workspace, steps, source_sha256, "vetoed", why)
    path = path_to(source_sha256, steps)
    techniques = tuple(step.technique for step in path)
    write_lesson(
        plan,
        summary,
        f"{', then '.join(techniques)}: a kernel that passed every check was {why}",
        kind="condition",
        author=author,
        iteration=plan.iterations,
        technique=" then ".join(techniques) or None,
    )


def overturn(
    workspace: Workspace,
    steps: Iterable[Step],
    source_sha256: str,
    outcome: Literal["vetoed", "unconfirmed"],
    why: str,
) -> None:
    """Let the steps that made a kernel count as failures; told again, it changes nothing."""
    workspace.knowledge.overturn(
        Overturned(evidence=step.evidence_id, outcome=outcome, reason=why)
        for step in steps
        if step.child_sha256 == source_sha256 and step.evidence_id and step.log_gain is not None
    )

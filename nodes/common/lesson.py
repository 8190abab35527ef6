"""Write one lesson to the knowledge base, beside those of parameter update."""

from __future__ import annotations

from ...memory.records import KnowledgeUpdate, Lesson, LessonKind
from ..records import RunPlan, TaskSummary
from .policies import reads_knowledge
from .steps import path_to
from .workspaces import workspace_of


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
    """Write down that a kernel which passes every check may not be announced.

    Args:
        plan: of the run.
        summary: of its task.
        source_sha256: of the kernel.
        why: `vetoed by ...: REASON`.
        author: who decided.
    """
    with workspace_of(plan) as workspace:
        path = path_to(source_sha256, workspace.store.replay.steps())
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

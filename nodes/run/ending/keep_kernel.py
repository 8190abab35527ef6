"""Keep the kernel that a run announces: the next run of its task begins with it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from ....memory.knowledge.kernels import KnownKernel, TaskSeen
from ....tools.models.records import BUILTIN
from ....tools.workspace import Workspace
from ...common.policies import reads_knowledge
from ...records.kernels import KernelPoint, KnownStart, TechniqueStep
from ...records.plan import RunPlan
from ...records.result import Confirmation
from ...records.task import TaskSummary


def keep_kernel(
    workspace: Workspace,
    plan: RunPlan,
    summary: TaskSummary,
    initial: KernelPoint,
    confirmation: Confirmation,
    path: Sequence[TechniqueStep],
    known: KnownStart,
) -> None:
    """Keep a winner that held, unless it is the direct translation, and note the task in any case.

    Again changes nothing.

    Args:
        workspace: of the run.
        plan: of it.
        summary: of its task.
        initial: its first kernel.
        confirmation: of its winner.
        path: from the first kernel to the winner.
        known: what it began with.
    """
    winner = confirmation.point
    first = winner.source_sha256 == initial.source_sha256
    if not reads_knowledge(plan):
        return
    task = TaskSeen.of(workspace.task(summary.artifact))
    workspace.knowledge.see_task(task)
    if not confirmation.confirmed or first and initial.author.split(" ")[0] == BUILTIN:
        return
    began_known = known.point is not None and initial.source_sha256 == known.point.source_sha256
    identity = workspace.measured_by
    kernel = KnownKernel(
        task_id=summary.id,
        source_sha256=winner.source_sha256,
        microseconds=confirmation.microseconds,
        # Of a run without a plain kernel of its own nobody knows what it would have gained on one.
        first_us=None if began_known else initial.microseconds,
        bound_us=summary.bound_us,
        device_kind=identity.kind,
        gpu=identity.gpu,
        arch=identity.arch,
        harness=identity.harness,
        toolchain=identity.toolchain,
        author=winner.author or BUILTIN,
        techniques=_techniques(path, known, began_known),
        run=plan.run_id,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    source = workspace.artifacts.get_text(winner.source_sha256)
    workspace.knowledge.keep_kernel(task, kernel, source)


def _techniques(
    path: Sequence[TechniqueStep], known: KnownStart, began_known: bool
) -> tuple[str, ...]:
    """Return what led from the plain first kernel to a winner, the earlier runs' share too; each
    once, or it would grow with every run that tunes a little further."""
    names = list(known.techniques) if began_known else []
    for step in path:
        names += step.names
    return tuple(dict.fromkeys(names))

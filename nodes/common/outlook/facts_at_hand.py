"""What is known of the kernel at hand, as conditions of optimizations and lessons ask for it."""

from __future__ import annotations

from collections.abc import Iterable

from ....harness.records.profiles import Profile
from ....memory.knowledge.states.conditions import KernelFacts, kernel_facts
from ....tools.techniques.conditions import APPLIED_GAIN
from ....tools.workspace import Workspace
from ...records.kernels import TechniqueStep
from ...records.plan import RunPlan
from ...records.task import TaskSummary


def facts_at_hand(
    workspace: Workspace,
    plan: RunPlan,
    summary: TaskSummary,
    profile: Profile,
    path: Iterable[TechniqueStep],
) -> KernelFacts:
    """Return the facts of a kernel of a run by its profile; `path` is how it came about."""
    return kernel_facts(
        workspace.task(summary.artifact),
        profile,
        workspace.measured_by,
        bound_us=summary.bound_us,
        applied=[name for step in path if step.gain > APPLIED_GAIN for name in step.names],
        writer=plan.models.model_of("kernel_writer"),
    )

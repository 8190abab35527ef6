"""Where a technique would be applied, as the policy asks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....harness.records.evaluations import DeviceIdentity
from ....harness.records.outcomes import Outcome
from ....harness.records.profiles import Profile
from ....memory.knowledge.policy.policy import unknown_technique
from ....memory.knowledge.states.signature import signature_of
from ....memory.records.evidence import Step
from ....memory.records.optimizations import Optimization
from ....memory.records.policy import KernelAtHand, LaunchAtHand, PolicyContext, setting_name
from ....tools.workspace import Workspace
from ...records.choices import TechniqueChoice
from ...records.kernels import KernelPoint
from ...records.plan import RunPlan
from ...records.task import TaskSummary
from ..history.steps import Place, visible_steps, ways_through


def policy_context(
    identity: DeviceIdentity, summary: TaskSummary, tried: tuple[str, ...] = ()
) -> PolicyContext:
    """Return the circumstances of a run, with the techniques that are not to be offered."""
    return PolicyContext.of(identity, summary.op_class, summary.dtype, tried)


def kernel_in_context(
    workspace: Workspace,
    plan: RunPlan,
    summary: TaskSummary,
    point: KernelPoint,
    place: Place,
    *,
    tried: tuple[str, ...] = (),
    able: Mapping[str, tuple[str, ...]] | None = None,
) -> PolicyContext:
    """Return the circumstances of one kernel at a place of the run.

    Args:
        workspace: of the run.
        plan: of the run.
        summary: of its task.
        point: the kernel.
        place: iteration, rollout and step that ask: they know earlier iterations and their own.
        tried: techniques that are not to be offered.
        able: by technique, the kernels of the program that it has work in.
    """
    steps = visible_steps(workspace, place)
    profile = workspace.evaluation(point.evaluation_key).profile
    way = ways_through(steps).get(point.source_sha256, ())
    assert profile is not None
    kernel = KernelAtHand(
        task_id=summary.id,
        source_sha256=point.source_sha256,
        microseconds=point.microseconds,
        bound_us=summary.bound_us,
        launches=launches_at_hand(profile),
        able=dict(able or {}),
        applied=tuple((step.technique, step.launch, step.parameters) for step in way),
    )
    own = [step for step in steps if (step.iteration, step.rollout) == place[:2]]
    return policy_context(workspace.measured_by, summary, tried).model_copy(
        update={
            "writer": plan.models.model_of("kernel_writer"),
            "kernel": kernel,
            "refused": tuple(refusals(steps)),
            "own": tuple(step.evidence_id for step in own if step.evidence_id),
        }
    )


def aimed_at(context: PolicyContext, targets: Mapping[str, str]) -> PolicyContext:
    """Return the circumstances of a kernel where techniques are aimed at kernels of the program:
    those that their rewrites change, or that were named for them."""
    assert context.kernel is not None
    kernel = context.kernel.model_copy(
        update={"targets": {**context.kernel.targets, **targets}}
    )
    return context.model_copy(update={"kernel": kernel})


def launches_at_hand(profile: Profile) -> tuple[LaunchAtHand, ...]:
    """Return the kernels of a program, the costliest first."""
    total = profile.microseconds
    return tuple(
        LaunchAtHand(
            kernel=share.kernel,
            share=share.microseconds / total,
            signature=signature_of(profile, share.longest).values,
        )
        for share in profile.by_kernel
    )


def card_of(workspace: Workspace, of: Step | TechniqueChoice) -> Optimization:
    """Return the card of what was chosen or tried: its own, the seed's, or one that says little."""
    seed = workspace.knowledge.seed().techniques
    return of.optimization or seed.get(of.technique) or unknown_technique(of.technique)


def refusals(steps: Sequence[Step]) -> list[tuple[str, str, str]]:
    """Return technique, kernel and setting of all that failed in some steps, each once.

    What did not apply to a source may apply to the next, and where the task or the machine failed
    nothing is known of the technique.
    """
    failed = (
        (step, setting)
        for step in steps
        for setting in (*step.refused, *([step.parameters] if _is_refused(step) else []))
    )
    return list(
        dict.fromkeys((step.technique, step.launch, setting_name(each)) for step, each in failed)
    )


def _is_refused(step: Step) -> bool:
    return (
        step.outcome is not Outcome.PASSED
        and step.outcome.is_verdict
        and step.outcome.has_candidate
    )

"""Record the step: replay buffer, evidence, and where the trajectory goes on from.

Reads the step's records; writes current, best, and `ended` when the trajectory is over. Where a
reviewer's input has shown the kernel at hand wrong, another that stands takes its place.
Every step is evidence, failures too, but for a number that was changed in a kernel and broke it;
both stores ignore a row they already have.
"""

from __future__ import annotations

import asyncio
import datetime
import math
from typing import Any, NotRequired, TypedDict

from ....harness.records.evaluations import DeviceIdentity
from ....harness.records.outcomes import Outcome
from ....harness.records.timings import error_of_log_ratio
from ....memory.knowledge.policy.actions import writer_of
from ....memory.knowledge.states.conditions import circumstance_facts
from ....memory.records.evidence import Applied, Circumstances, Evidence, Step
from ....memory.records.states import PerformanceState, Signature
from ....tools.progress import report_progress
from ....tools.workspace import Workspace
from ...common.history.losers import why_lost
from ...common.outlook.policy_context import card_of, kernel_in_context, policy_context
from ...common.randomness import explores
from ...common.stopping.until import end_of_search
from ...common.workspaces import workspace_of
from ...records.accounts import Said, StepAccount
from ...records.choices import Proposal, TechniqueChoice
from ...records.kernels import KernelPoint, faster
from ...records.lowering import LoweringResult
from ...records.observations import Observation, StateChoice
from ...records.plan import RunPlan
from ...records.task import TaskSummary
from ...state_extractor.builtin import describe_state
from .start_point import standing

NEUTRAL = 0.97
"""A child this fast or faster is where the trajectory goes on: neutral moves prepare others."""

PREPARING = 0.75
"""A slower child, down to this, is gone on from in an exploring rollout when the bottleneck moved:
a tile in shared memory that still has bank conflicts is slower until it is padded."""


class Reads(TypedDict):
    """What this node reads."""

    plan: RunPlan
    summary: TaskSummary
    start_point: NotRequired[KernelPoint]
    current: KernelPoint
    best: KernelPoint
    observation: Observation
    state_choice: StateChoice
    found_states: NotRequired[tuple[PerformanceState, ...]]
    choice: TechniqueChoice
    proposals: NotRequired[tuple[Proposal, ...]]
    result: LoweringResult
    knowledge_at: int
    iteration: int
    rollout: int
    step: int


async def record_step(state: Reads) -> dict[str, Any]:
    """Write the step to replay buffer and evidence, and move on."""
    record = await asyncio.to_thread(_record, state)
    child = state["result"].point
    best = faster(state["best"], child)
    accepted = child is not None and accepts(
        state["current"],
        child,
        explores(state["plan"], state["rollout"]),
    )
    step = state["step"] + 1
    ended = f"{step} steps taken" if step >= state["plan"].steps else ""
    report_progress(
        "step",
        iteration=state["iteration"],
        rollout=state["rollout"],
        step=state["step"],
        state=state["state_choice"].state.name,
        technique=record.technique,
        launch=record.launch if len(state["observation"].launches) > 1 else "",
        outcome=record.outcome,
        reason=record.reason,
        log_gain=record.log_gain,
        expected_log_gain=record.expected_log_gain,
        accepted=accepted,
        best_microseconds=best.microseconds,
        state_author=record.state_author,
        choice_author=record.choice_author,
        author=record.author,
    )
    current = child if accepted else state["current"]
    if record.outcome is Outcome.WRONG_ANSWER:
        # What showed it may show what it was made of wrong too: an input that a reviewer found.
        points = dict.fromkeys((state["current"], best, state.get("start_point", best)))
        current = await standing(state["plan"], state["summary"], list(points))
        ended = ended if current else "what it goes on from is wrong on an input found since"
    return {
        "current": current or state["current"],
        "best": best,
        "step": step,
        "ended": end_of_search(state["plan"], state["summary"], best) or ended,
    }


def accepts(parent: KernelPoint, child: KernelPoint, exploring: bool) -> bool:
    """Say whether the trajectory goes on from the child rather than from its parent."""
    gain = _gain(parent, child)
    prepares = exploring and child.bottleneck != parent.bottleneck
    return gain >= NEUTRAL or (prepares and gain >= PREPARING)


def _record(state: Reads) -> Step:
    plan, result, current = state["plan"], state["result"], state["current"]
    child = result.point
    applied = Applied(
        run=plan.run_id,
        iteration=state["iteration"],
        rollout=state["rollout"],
        step=state["step"],
        technique=state["choice"].technique,
        launch=state["choice"].launch,
        parameters=result.parameters,
        expected_log_gain=state["choice"].expected_log_gain,
        outcome=result.outcome,
        log_gain=math.log(_gain(current, child)) if child else None,
        parent_sha256=current.source_sha256,
        child_sha256=result.source_sha256,
        author=result.author,
    )
    with workspace_of(plan) as workspace:
        *mended, evidence = _evidence(applied, state, workspace)
        # A number that cannot be changed alone says nothing of the technique with that setting.
        alone = bool(state["choice"].basis)
        counts = not alone or child is not None
        workspace.knowledge.add_evidence([*([] if alone else mended), evidence] if counts else [])
        record = Step(
            **{name: getattr(evidence, name) for name in Applied.model_fields},
            state_id=state["state_choice"].state.id,
            state_author=state["state_choice"].author,
            choice_author=state["choice"].author,
            reason=result.reason,
            microseconds_before=current.microseconds,
            microseconds_after=child.microseconds if child else None,
            bottleneck_before=current.bottleneck,
            bottleneck_after=child.bottleneck if child else None,
            evaluation_key=result.evaluation_key,
            evidence_id=evidence.id if counts else None,
            optimization=state["choice"].optimization,
            refused=tuple(each.parameters for each in mended),
            lost=_lost(state, workspace),
            account_sha256=workspace.artifacts.put_text(_account(state).model_dump_json()),
        )
        workspace.store.replay.add([record])
    return record


def _account(state: Reads) -> StepAccount:
    """Return what the agents said, for who reads the run afterwards."""
    seen, found, choice = state["observation"], state["state_choice"], state["choice"]
    description = "; ".join((seen.description, *seen.features))
    return StepAccount(
        state_name=found.state.name,
        said=(
            Said(role="state_extractor", text=description, author=seen.author),
            Said(role="state_selector", text=found.reason, author=found.author),
            Said(role="optimization_selector", text=choice.reason, author=choice.author),
        ),
        proposals=tuple(state.get("proposals", ())),
        success_probability=choice.success_probability,
        attempts=state["result"].attempts,
    )


def _evidence(applied: Applied, state: Reads, workspace: Workspace) -> list[Evidence]:
    """Return a row for each attempt that was judged, with its circumstances and what was forecast
    of it; the last is the step's."""
    result, current, choice = state["result"], state["current"], state["choice"]
    identity: DeviceIdentity = workspace.measured_by
    child = result.point
    place = state["iteration"], state["rollout"], state["step"]
    context = kernel_in_context(workspace, state["plan"], state["summary"], current, place)
    card = card_of(workspace, choice)

    def row(applied: Applied, **of_its_own: Any) -> Evidence:
        asking = context.model_copy(update={"writer": writer_of(applied.author)})
        question, forecast = workspace.knowledge.forecast(
            state["state_choice"].state, card, choice.launch, applied.parameters, asking,
            state["knowledge_at"],
        )  # fmt: skip
        told = {
            "earlier": question.action.earlier,
            "expected_log_gain": forecast.mean,
            "forecast_std": forecast.spread,
            "forecast_pass": forecast.passes.probability,
        }
        return Evidence(
            **{**dict(applied), **told, **of_its_own},
            **{name: getattr(context, name) for name in Circumstances.model_fields},
            task_id=state["summary"].id,
            state_before=state["state_choice"].state.id,
            signature_before=state["observation"].signature,
            launch_signature=question.situation.signature,
            launch_share=question.situation.share,
            microseconds=current.microseconds,
            bound_us=state["summary"].bound_us,
            previous_technique=current.technique or None,
            toolchain=identity.toolchain,
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )

    mended = [
        row(
            applied.model_copy(
                update={
                    "parameters": attempt.parameters,
                    "outcome": attempt.outcome,
                    "log_gain": None,
                    "child_sha256": attempt.source_sha256,
                    "author": attempt.author,
                }
            ),
            prompt_sha256=attempt.prompt_sha256,
            repairs=attempt.number if attempt.prompt_sha256 else 0,
        )
        for attempt in result.attempts
        if attempt.source_sha256 not in (None, result.source_sha256)
        and attempt.outcome not in (None, Outcome.PASSED)
    ]
    last = row(
        applied,
        state_after=_state_after(state, workspace),
        standard_error=error_of_log_ratio(
            current.provenance, current.interval, child.interval
        ) if child else 0.0,
        prompt_sha256=result.prompt_sha256,
        # A built-in writer mends nothing: it goes on to the next parameter values.
        repairs=result.repairs if result.prompt_sha256 else 0,
    )
    return [*mended, last]


def _state_after(state: Reads, workspace: Workspace) -> str | None:
    key = state["result"].evaluation_key
    evaluation = workspace.store.get(key) if key else None
    if evaluation is None or evaluation.outcome is not Outcome.PASSED or not evaluation.profile:
        return None
    observation = describe_state(evaluation.profile, state["summary"].bound_us)
    seen = observation.target or observation
    found, _, _ = workspace.knowledge.match_state(
        Signature(values=seen.signature), seen.primary, seen.secondary,
        state["knowledge_at"], state.get("found_states", ()),
        circumstance_facts(policy_context(workspace.measured_by, state["summary"])),
    )  # fmt: skip
    return found.id


def _lost(state: Reads, workspace: Workspace) -> str:
    """Return why a child that passed is slower; empty where it is not."""
    current, child = state["current"], state["result"].point
    if child is None:
        return ""
    before, after = (
        workspace.evaluation(point.evaluation_key) for point in (current, child)
    )
    return why_lost(before, after, math.log(_gain(current, child)))


def _gain(parent: KernelPoint, child: KernelPoint) -> float:
    return parent.microseconds / child.microseconds

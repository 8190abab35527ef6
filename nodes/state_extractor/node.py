"""State extractor: the performance signature of the kernel at hand (KernelBlaster: states).

Reads plan, summary, current; writes observation. The state is what the policy conditions on, so it
is taken from the newest profile at every step. The signature is always the profile's; a model says
in its place what holds the kernel back, and why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypedDict, get_args

from ...harness.records import Bottleneck, Profile
from ...memory.knowledge.signature import DIMENSIONS, explain
from ...memory.records import Signature
from ...tools.models.records import BUILTIN, Answer, Message
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.asking import asked, stand_in
from ..common.budgeted import within_time
from ..common.prompts.render import render
from ..common.prompts.subject import kernel_context, task_context
from ..common.replies import checked
from ..common.workspaces import workspace_of
from ..records import KernelPoint, Observation, RunPlan, TaskSummary
from .builtin import CAUSES, describe_state
from .reply import StateReading

FEATURES = 10
"""Unusual figures of a profile that a model is shown."""
NEAR = 0.5
"""A second resource is one that alone would need this share of the first's time."""
TOLD = frozenset(
    {
        "sm", "dram", "l2", "l1", "l1_hit", "l2_hit", "occupancy_limit", "occupancy",
        "limit_registers", "limit_shared", "limit_blocks", "load_sectors", "store_sectors",
        "uncoalesced", "bank_conflicts", "shared_share", "fma", "alu", "xu", "lsu",
        "tensor", "idle_lanes", "many_waves", "compute_balance", "duration", "more_launches",
        "other_launches",
    }
)  # fmt: skip
"""Dimensions whose figures stand where the prompt says where the time goes, or say little more."""


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    current: KernelPoint
    iteration: int
    rollout: int
    step: int


async def state_extractor(state: Reads) -> dict[str, Any]:
    """Describe the current kernel's performance in words and numbers."""
    plan = state["plan"]
    await within_time(plan)
    profile = await asyncio.to_thread(_profile, plan, state["current"])
    observation = describe_state(profile)
    if plan.models.model_of("state_extractor") != BUILTIN:
        observation = read_as(observation, await _ask(state, profile, observation))
    report_progress(
        "state",
        iteration=state["iteration"],
        rollout=state["rollout"],
        step=state["step"],
        bottleneck=observation.primary,
        description=observation.description,
        microseconds=state["current"].microseconds,
        author=observation.author,
    )
    return {"observation": observation}


def _profile(plan: RunPlan, point: KernelPoint) -> Profile:
    with workspace_of(plan) as workspace:
        profile = workspace.evaluation(point.evaluation_key).profile
    assert profile is not None
    return profile


async def _ask(state: Reads, profile: Profile, rule: Observation) -> Answer[StateReading]:
    def prepare(workspace: Workspace) -> tuple[tuple[Message, ...], type[StateReading]]:
        return _messages(workspace, state, profile, rule), reading_of(profile)

    place = state["iteration"], state["rollout"], state["step"]
    return await asked(state["plan"], "state_extractor", place, prepare)


def _messages(
    workspace: Workspace, state: Reads, profile: Profile, rule: Observation
) -> tuple[Message, ...]:
    current = state["current"]
    task = workspace.task(state["summary"].artifact)
    source = workspace.artifacts.get_text(current.source_sha256)
    return render(
        "state_extractor",
        state["plan"].models.context_of("state_extractor"),
        **task_context(task, workspace.measured_by),
        **kernel_context(task, source, workspace.evaluation(current.evaluation_key), current.path),
        bottlenecks=[(name, words.removeprefix("limited by ")) for name, words in CAUSES.items()],
        features="\n".join(f"- {words}" for words in _unusual(rule)),
        primary=rule.primary,
        secondary=_second(profile, rule),
        near=f"{NEAR:.0%}",
        plausible=", ".join(plausible(profile)),
    )


def _unusual(rule: Observation) -> list[str]:
    """Return what is unusual beside what the launches' own lines tell."""
    values = (
        dimension.neutral
        if dimension.name in TOLD or dimension.name.startswith("bound_")
        else value
        for dimension, value in zip(DIMENSIONS, rule.signature, strict=True)
    )
    return explain(Signature(values=tuple(values)), limit=FEATURES)


def _second(profile: Profile, rule: Observation) -> Bottleneck | None:
    """Return the rule's second resource where it comes near the first; None where it does not."""
    terms = profile.dominant.terms
    second = rule.secondary
    if second is None or not terms:
        return second
    return second if terms.get(second, 0.0) >= NEAR * terms.get(rule.primary, 0.0) else None


def plausible(profile: Profile) -> tuple[Bottleneck, ...]:
    """Return the resources that can hold back the longest launch.

    Where a time model gives the part of each, only those that have one; elsewhere all but
    those that the kernel did not use by its counters: tensor cores, shared memory, atomics.
    """
    launch = profile.dominant
    named: set[str] = {launch.bottleneck, *launch.bottleneck_ties, "latency", "launch"}
    if launch.terms:
        named |= {name for name, microseconds in launch.terms.items() if microseconds > 0}
    else:
        named |= {name for name in get_args(Bottleneck) if _is_used(name, launch.metrics)}
    return tuple(name for name in get_args(Bottleneck) if name in named)


def _is_used(name: Bottleneck, metrics: Mapping[str, float]) -> bool:
    """Say whether counters leave it open that a resource was at work."""
    words = {
        "tensor": ("tensor",),
        "shared_memory": ("mem_shared", "wavefronts_shared", "op_shared"),
        "atomic": ("op_atom", "op_red"),
    }.get(name)
    if words is None:
        return True
    counted = {key: value for key, value in metrics.items() if any(word in key for word in words)}
    at_work = any(value > _idle(key) for key, value in counted.items())
    return at_work or (not counted and name != "tensor")


def _idle(metric: str) -> float:
    """Return what a counter shows of a resource that does nothing: shares are read to about 1 %."""
    return 1.0 if "pct_of_peak" in metric else 0.0


def reading_of(profile: Profile) -> type[StateReading]:
    """Return the form of a reading of one profile: it must name resources at work there."""
    known = plausible(profile)

    def check(reading: StateReading) -> None:
        for name in (reading.primary, reading.secondary):
            if name is not None and name not in known:
                raise ValueError(
                    f"the profile shows no work of {name}; name one of {', '.join(known)}"
                )
        if reading.secondary == reading.primary:
            raise ValueError("primary and secondary are the same resource")

    return checked(StateReading, check)


def read_as(rule: Observation, answer: Answer[StateReading]) -> Observation:
    """Return the observation in a model's words, the rule's where it has none."""
    reading = answer.value
    if reading is None:
        return rule.model_copy(update={"author": stand_in(answer)})
    return rule.model_copy(
        update={
            "primary": reading.primary,
            "secondary": reading.secondary,
            "description": reading.description,
            "features": reading.features,
            "author": answer.author,
        }
    )

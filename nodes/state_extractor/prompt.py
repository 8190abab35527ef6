"""The state extractor's question to a model: profile, code, and what the rule reads off them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...harness.judge.by_time import NO_COUNTERS
from ...harness.records.profiles import Bottleneck, Profile
from ...memory.knowledge.states.dimensions import DIMENSIONS
from ...memory.knowledge.states.matching import Near
from ...memory.knowledge.states.signature import completed, explain
from ...memory.records.states import Signature
from ...tools.models.records import Message
from ...tools.workspace import Workspace
from ..common.history.steps import path_to, visible_steps
from ..common.prompts.render import render
from ..common.prompts.subject import kernel_context, task_context
from ..records.observations import Observation
from .builtin import CAUSES
from .reply import plausible

State = Mapping[str, Any]
"""What the node reads."""

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
        "other_launches", "block_threads", "register_share", "written", "thread_bytes",
        "stall_memory", "stall_queue", "stall_shared", "stall_barrier", "stall_pipe",
        "stall_chain", "stall_fetch", "at_bound", "idle_sms",
    }
)  # fmt: skip
"""Dimensions whose figures stand where the prompt says where the time goes, or say little more."""


def extractor_messages(
    workspace: Workspace,
    state: State,
    profile: Profile,
    rule: Observation,
    near: Sequence[Near] = (),
) -> tuple[Message, ...]:
    """Return the prompt of the state extractor; `near` are states that may be the kernel's."""
    current = state["current"]
    task = workspace.task(state["summary"].artifact)
    source = workspace.artifacts.get_text(current.source_sha256)
    steps = visible_steps(workspace, (state["iteration"], state["rollout"], state["step"]))
    evaluation = workspace.evaluation(current.evaluation_key)
    return render(
        "state_extractor",
        state["plan"].models.context_of("state_extractor"),
        **task_context(task, workspace.measured_by),
        **kernel_context(task, source, evaluation, path_to(current.source_sha256, steps)),
        bottlenecks=[(name, words.removeprefix("limited by ")) for name, words in CAUSES.items()],
        features="\n".join(f"- {words}" for words in unusual(rule)),
        counted=NO_COUNTERS not in profile.dominant.advice,
        primary=rule.primary,
        secondary=second_resource(profile, rule),
        near=f"{NEAR:.0%}",
        plausible=", ".join(plausible(profile)),
        near_states=[f"{each.state.name} ({each.state.primary})" for each in near],
    )


def unusual(rule: Observation) -> list[str]:
    """Return what is unusual beside what the launches' own lines tell."""
    values = (
        dimension.neutral
        if dimension.name in TOLD or dimension.name.startswith("bound_")
        else value
        for dimension, value in zip(DIMENSIONS, completed(rule.signature), strict=True)
    )
    return explain(Signature(values=tuple(values)), limit=FEATURES)


def second_resource(profile: Profile, rule: Observation) -> Bottleneck | None:
    """Return the rule's second resource where it comes near the first; None where it does not."""
    terms = profile.dominant.terms
    second = rule.secondary
    if second is None or not terms:
        return second
    return second if terms.get(second, 0.0) >= NEAR * terms.get(rule.primary, 0.0) else None

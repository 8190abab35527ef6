"""State extractor: the performance signature of the kernel at hand (KernelBlaster: states).

Reads plan, summary, current, evaluations_left, found_states and the snapshot; writes observation,
or `ended` where a cap ends the search. The state is what the policy conditions on, so it is taken
from the newest profile at every step, for each kernel of the program. The signature is always the
profile's; where it leaves open which state the kernel worth working on is in, a model says what
holds it back, and why.
"""

from __future__ import annotations

import asyncio
from typing import Any, NotRequired, TypedDict

from ...harness.records.profiles import Profile
from ...memory.knowledge.states.conditions import KernelFacts, circumstance_facts
from ...memory.knowledge.states.matching import Near, tied
from ...memory.records.states import PerformanceState, Signature
from ...tools.models.records import Answer, Message
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.asking import asked, stand_in
from ..common.outlook.policy_context import policy_context
from ..common.stopping.caps import search_over
from ..common.ties import asks_model
from ..common.workspaces import workspace_of
from ..records.kernels import KernelPoint
from ..records.observations import LaunchSeen, Observation
from ..records.plan import RunPlan
from ..records.task import TaskSummary
from .builtin import describe_state
from .prompt import extractor_messages
from .reply import StateReading, reading_of


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    current: KernelPoint
    knowledge_at: int
    found_states: NotRequired[tuple[PerformanceState, ...]]
    iteration: int
    rollout: int
    step: int
    evaluations_left: NotRequired[int | None]


async def state_extractor(state: Reads) -> dict[str, Any]:
    """Describe the current kernel's performance in words and numbers."""
    plan = state["plan"]
    left = state.get("evaluations_left")
    if left is not None and left <= 0:
        return {"ended": "its part of the evaluations is used up"}
    if ended := await search_over(plan):
        return {"ended": ended, "over": True}
    profile, observation, near = await asyncio.to_thread(_seen, state)
    if _is_longest(observation) and asks_model(plan, "state_extractor", near):
        observation = read_as(observation, await _ask(state, profile, observation, near))
    observation = await asyncio.to_thread(_placed, state, observation)
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


def _seen(state: Reads) -> tuple[Profile, Observation, list[Near]]:
    """Return the profile, what the rule reads off it, and the states near the kernel worth it."""
    with workspace_of(state["plan"]) as workspace:
        profile = workspace.evaluation(state["current"].evaluation_key).profile
        assert profile is not None
        observation = describe_state(profile, state["summary"].bound_us)
        seen = observation.target or observation
        near = workspace.knowledge.near_states(
            Signature(values=seen.signature), seen.primary, seen.secondary,
            state["knowledge_at"], state.get("found_states", ()),
            _facts(workspace, state["summary"]),
        )  # fmt: skip
    return profile, observation, near


def _is_longest(observation: Observation) -> bool:
    """Say whether the kernel worth working on is the one that a model reads of."""
    return observation.target is None or observation.target is longest(observation)


def _placed(state: Reads, observation: Observation) -> Observation:
    """Return the observation with the state of each kernel."""
    found = state.get("found_states", ())
    with workspace_of(state["plan"]) as workspace:
        facts = _facts(workspace, state["summary"])
        launches = []
        for launch in observation.launches:
            known, _, discovered = workspace.knowledge.match_state(
                Signature(values=launch.signature), launch.primary, launch.secondary,
                state["knowledge_at"], found, facts,
            )  # fmt: skip
            launches.append(launch.model_copy(update={"state": "" if discovered else known.id}))
    return observation.model_copy(update={"launches": tuple(launches)})


def _facts(workspace: Workspace, summary: TaskSummary) -> KernelFacts:
    return circumstance_facts(policy_context(workspace.measured_by, summary))


async def _ask(
    state: Reads, profile: Profile, rule: Observation, near: list[Near]
) -> Answer[StateReading]:
    def prepare(workspace: Workspace) -> tuple[tuple[Message, ...], type[StateReading]]:
        messages = extractor_messages(workspace, state, profile, rule, tied(near))
        return messages, reading_of(profile)

    place = state["iteration"], state["rollout"], state["step"]
    return await asked(state["plan"], "state_extractor", place, prepare)


def read_as(rule: Observation, answer: Answer[StateReading]) -> Observation:
    """Return the observation in a model's words, the rule's where it has none."""
    reading = answer.value
    if reading is None:
        return rule.model_copy(update={"author": stand_in(answer)})
    said = {
        "primary": reading.primary,
        "secondary": reading.secondary,
        "description": reading.description,
    }
    launches = tuple(
        launch.model_copy(update=said) if launch is longest(rule) else launch
        for launch in rule.launches
    )
    return rule.model_copy(
        update={
            **said, "features": reading.features, "launches": launches, "author": answer.author,
        }
    )  # fmt: skip


def longest(observation: Observation) -> LaunchSeen | None:
    """Return the kernel whose launches take most of the time together."""
    return max(observation.launches, key=lambda launch: launch.microseconds, default=None)

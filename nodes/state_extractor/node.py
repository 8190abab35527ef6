"""State extractor: the performance signature of the kernel at hand (KernelBlaster: states).

Reads plan, summary, current, evaluations_left; writes observation, or `ended` where a cap ends the
search. The state is what the policy conditions on, so it
is taken from the newest profile at every step. The signature is always the profile's; a model says
in its place what holds the kernel back, and why.
"""

from __future__ import annotations

import asyncio
from typing import Any, NotRequired, TypedDict

from ...harness.records import Profile
from ...tools.models.records import BUILTIN, Answer, Message
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.asking import asked, stand_in
from ..common.caps import search_over
from ..common.workspaces import workspace_of
from ..records import KernelPoint, Observation, RunPlan, TaskSummary
from .builtin import describe_state
from .prompt import extractor_messages
from .reply import StateReading, reading_of


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    current: KernelPoint
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
        return extractor_messages(workspace, state, profile, rule), reading_of(profile)

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
    longest = max(rule.launches, key=lambda launch: launch.microseconds, default=None)
    launches = tuple(
        launch.model_copy(update=said) if launch is longest else launch for launch in rule.launches
    )
    return rule.model_copy(
        update={
            **said, "features": reading.features, "launches": launches, "author": answer.author,
        }
    )  # fmt: skip

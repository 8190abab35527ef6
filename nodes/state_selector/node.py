"""State selector: match the signature with a known state, or discover a new one.

Reads plan, summary, observation and the snapshot; writes state_choice. A state fits when its
centroid is near AND its bottleneck agrees (KernelBlaster's matcher); otherwise a new state is
written. A model chooses among the nearest states whose bottleneck agrees, and names new ones; a new
state's place among the others is the signature's.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ...memory.records import PerformanceState, Signature
from ...tools.models.records import BUILTIN, Message
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.asking import asked, stand_in
from ..common.workspaces import opened, workspace_of
from ..records import Observation, RunPlan, StateChoice, TaskSummary
from .builtin import match
from .prompt import chosen, match_messages, nearest
from .reply import StateMatch, match_among


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    observation: Observation
    knowledge_at: int
    iteration: int
    rollout: int
    step: int


async def state_selector(state: Reads) -> dict[str, Any]:
    """Choose the state of the current kernel."""
    plan = state["plan"]
    if plan.models.model_of("state_selector") == BUILTIN:
        choice = await _match(state)
    else:
        choice = await _ask(state)
    if choice.discovered:
        await asyncio.to_thread(_add, plan, choice.state)
    report_progress(
        "state_choice",
        iteration=state["iteration"],
        rollout=state["rollout"],
        step=state["step"],
        state=choice.state.name,
        discovered=choice.discovered,
        distance=choice.distance,
        author=choice.author,
    )
    return {"state_choice": choice}


async def _match(state: Reads) -> StateChoice:
    async with opened(state["plan"]) as workspace:
        return await asyncio.to_thread(
            match, workspace.knowledge, state["observation"], state["knowledge_at"]
        )


def _add(plan: RunPlan, state: PerformanceState) -> None:
    # Idempotent: its id is a hash of its content, so a step replayed after a kill adds nothing;
    # rollouts of this iteration read the snapshot and so do not see it yet.
    with workspace_of(plan) as workspace:
        workspace.knowledge.add_state(state)


# By a model ----------------------------------------------------------------------------------


async def _ask(state: Reads) -> StateChoice:
    observation = state["observation"]
    near, fresh, names = await asyncio.to_thread(_known, state)

    def prepare(_: Workspace) -> tuple[tuple[Message, ...], type[StateMatch]]:
        messages = match_messages(state["plan"], state["summary"], observation, near)
        return messages, match_among(near, names)

    place = state["iteration"], state["rollout"], state["step"]
    answer = await asked(state["plan"], "state_selector", place, prepare)
    if answer.value is None:
        helped = await _match(state)
        return helped.model_copy(update={"author": stand_in(answer)})
    return chosen(answer, near, fresh, observation)


def _known(
    state: Reads,
) -> tuple[list[PerformanceState], tuple[PerformanceState, float, bool], frozenset[str]]:
    """Return the nearest states, what a new one would be, and the names that are taken."""
    observation = state["observation"]
    with workspace_of(state["plan"]) as workspace:
        knowledge = workspace.knowledge
        return (
            nearest(knowledge, observation, state["knowledge_at"]),
            # Among no states: the new one, or the known one that stands in the same place.
            knowledge.snapshot(state["knowledge_at"]).choose(
                (),
                Signature(values=observation.signature),
                observation.primary,
                observation.secondary,
            ),
            frozenset(known.name for known in knowledge.states(state["knowledge_at"])),
        )

"""State selector: pick the kernel worth working on, and match it with a known state or a new one.

Reads plan, summary, observation, found_states, state_choice (of the step before) and the snapshot;
writes state_choice and found_states. The kernel is the one whose time above its own bound is
longest. Its state is the nearest within whose reach it lies; otherwise a new one is written, which
this rollout's next step knows and other rollouts know after the iteration. A model chooses where
two states fit about as well, once for a step and those that follow it, and names new ones; of a
kernel that a step returns to it is not asked again. A new state's place among the others is the
signature's.
"""

from __future__ import annotations

import asyncio
from typing import Any, NotRequired, TypedDict

from ...memory.knowledge.states.conditions import circumstance_facts
from ...memory.knowledge.states.matching import Near, tied
from ...memory.records.states import PerformanceState
from ...tools.models.records import Message
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.asking import asked, stand_in
from ..common.outlook.policy_context import policy_context
from ..common.ties import answered_before, asks_model
from ..common.workspaces import opened, workspace_of
from ..records.observations import Observation, StateChoice
from ..records.plan import RunPlan
from ..records.task import TaskSummary
from ..records.together import AnsweredTogether
from .builtin import match, near, subject
from .prompt import candidates, chosen, match_messages
from .reply import StateMatch, match_among

LEAST_WEIGHT = 0.005
"""Of a state that a model is told of because its figures are near the kernel's."""


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    observation: Observation
    knowledge_at: int
    found_states: NotRequired[tuple[PerformanceState, ...]]
    iteration: int
    rollout: int
    step: int
    decided: NotRequired[AnsweredTogether | None]
    state_choice: NotRequired[StateChoice]


async def state_selector(state: Reads) -> dict[str, Any]:
    """Choose the state of the current kernel."""
    plan, found = state["plan"], state.get("found_states", ())
    choice, close = await _match(state)
    before = state.get("state_choice")
    signature = state["observation"].signature
    if asks_model(plan, "state_selector", close, before, signature):
        choice = await _ask(state, choice, close)
    elif before is not None and (same := answered_before(close, before, signature)) is not None:
        told = {"reason": before.reason, "author": before.author, "among": before.among,
                "asked_of": before.asked_of}  # fmt: skip
        choice = choice.model_copy(
            update={"state": same[0], "distance": same[1], "discovered": False, **told}
        )
    if choice.discovered:
        await asyncio.to_thread(_add, plan, choice.state)
        found = (*found, choice.state)
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
    return {"state_choice": choice, "found_states": found}


async def _match(state: Reads) -> tuple[StateChoice, list[Near]]:
    observation, at, found = (
        state["observation"], state["knowledge_at"], state.get("found_states", ()),
    )  # fmt: skip
    async with opened(state["plan"]) as workspace:
        knowledge = workspace.knowledge

        def matched() -> tuple[StateChoice, list[Near]]:
            facts = circumstance_facts(policy_context(workspace.measured_by, state["summary"]))
            choice = match(knowledge, observation, at, found, facts)
            return choice, near(knowledge, observation, at, found, facts)

        return await asyncio.to_thread(matched)


def _add(plan: RunPlan, state: PerformanceState) -> None:
    # Idempotent: its id is a hash of its content, so a step replayed after a kill adds nothing;
    # other rollouts of this iteration read the snapshot and so do not see it yet.
    with workspace_of(plan) as workspace:
        workspace.knowledge.add_state(state)


# By a model ----------------------------------------------------------------------------------


async def _ask(state: Reads, rule: StateChoice, close: list[Near]) -> StateChoice:
    observation = state["observation"]
    shown, names = await asyncio.to_thread(shown_to_model, state, close)

    def prepare(_: Workspace) -> tuple[tuple[Message, ...], type[StateMatch]]:
        messages = match_messages(state["plan"], state["summary"], observation, shown)
        return messages, match_among([each.state for each in shown], names)

    place = state["iteration"], state["rollout"], state["step"]
    answer = await asked(
        state["plan"], "state_selector", place, prepare, state.get("decided")
    )
    if answer.value is None:
        return rule.model_copy(update={"author": stand_in(answer)})
    choice = chosen(answer, rule, shown, subject(observation))
    among = tuple(each.state.id for each in tied(close))
    return choice.model_copy(update={"among": among, "asked_of": observation.signature})


def shown_to_model(state: Reads, close: list[Near]) -> tuple[list[Near], frozenset[str]]:
    """Return the states among which a model chooses, and the names that are taken."""
    alike = tied(close)
    if state["plan"].agents == "compact" and len(alike) > 1:
        close = alike
    close = [each for each in close if each.weight >= LEAST_WEIGHT or each.within]
    with workspace_of(state["plan"]) as workspace:
        knowledge, at = workspace.knowledge, state["knowledge_at"]
        kind = workspace.measured_by.kind
        listed = candidates(knowledge, state["observation"], close, at, kind)
        return listed, frozenset(known.name for known in knowledge.states(at))

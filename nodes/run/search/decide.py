"""Decide: what compact agents of one model would each ask at a step, asked in one call.

Reads plan, summary, current, observation, found_states, described, kept, rejected, knowledge_at and
the place; writes decided, None where each asks by itself. The question is the proposer's, with two
more: which state it is, where the rule leaves that open, and what is tried next. State selector,
proposer and optimization selector each take their part as the typed reply that they would have got.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict, cast

from ....memory.knowledge.states.conditions import circumstance_facts
from ....memory.knowledge.states.matching import Near
from ....memory.records.states import PerformanceState
from ....tools.models.records import Message
from ....tools.workspace import Workspace
from ...common.asking import asked
from ...common.outlook.policy_context import policy_context
from ...common.prompts.render import Besides
from ...common.randomness import explores
from ...common.replies import Reply, checked
from ...common.ties import DECIDING, asks_model, decides_together
from ...common.workspaces import workspace_of
from ...optimization_proposer import node as proposer
from ...optimization_proposer.prompt import proposals_on
from ...optimization_proposer.reply import Proposals
from ...optimization_proposer.table import Table
from ...optimization_selector.reply import STOP, Selection
from ...records.choices import Proposal
from ...records.kernels import KernelPoint
from ...records.observations import Observation, StateChoice
from ...records.plan import RunPlan
from ...records.task import TaskSummary
from ...records.together import AnsweredTogether
from ...state_selector.builtin import match, near
from ...state_selector.node import shown_to_model
from ...state_selector.prompt import known_line
from ...state_selector.reply import StateMatch, match_among
from . import sweep


class Reads(TypedDict):
    """What this step reads."""

    plan: RunPlan
    summary: TaskSummary
    current: KernelPoint
    observation: Observation
    knowledge_at: int
    found_states: NotRequired[tuple[PerformanceState, ...]]
    described: NotRequired[tuple[Proposal, ...]]
    kept: NotRequired[tuple[Proposal, ...]]
    rejected: NotRequired[tuple[str, ...]]
    state_choice: NotRequired[StateChoice]
    iteration: int
    rollout: int
    step: int


class Decision(Proposals):
    """Reply of all that decide on a step."""

    choice: Selection
    """What is tried next."""
    state: StateMatch | None = None
    """Which state it is; null where none is asked for."""


class Question(NamedTuple):
    """What is asked together."""

    table: Table
    standing: tuple[Proposal, ...]
    """On the table already: kept, or swept."""
    states: Sequence[Near]
    """Among which one is chosen; none where the rule is clear."""
    names: frozenset[str]
    """Of states, that are taken."""


async def decide(state: Reads) -> dict[str, Any]:
    """Ask once for all that decide on the step, where one model answers for them."""
    plan = state["plan"]
    place = state["iteration"], state["rollout"], state["step"]
    question = await asyncio.to_thread(_question, state) if decides_together(plan) else None
    if question is None:
        return {"decided": None}

    def prepare(workspace: Workspace) -> tuple[tuple[Message, ...], type[Decision]]:
        return _messages(workspace, state, question), decision_on(question)

    answer = await asked(plan, "optimization_proposer", place, prepare)
    said, replies = answer.value, dict[str, dict[str, Any]]()
    if said is not None:
        told = said.model_dump(mode="json")
        replies = {
            "optimization_proposer": {"proposals": told["proposals"]},
            "optimization_selector": told["choice"],
        }
        if question.states and told["state"]:
            replies["state_selector"] = told["state"]
    return {
        "decided": AnsweredTogether(
            place=place,
            roles=(*DECIDING, *(["state_selector"] if question.states else [])),
            replies=replies,
            author=answer.author,
            reason=answer.reason,
            prompt_sha256=answer.prompt_sha256,
            reply_sha256=answer.reply_sha256,
        )
    }


def _question(state: Reads) -> Question | None:
    """Return what to ask; None where enough was proposed before, and a choice is all that is left.

    What is expected of techniques is told for the state that is nearest by the rule.
    """
    plan, observation, at = state["plan"], state["observation"], state["knowledge_at"]
    found = state.get("found_states", ())
    with workspace_of(plan) as workspace:
        facts = circumstance_facts(policy_context(workspace.measured_by, state["summary"]))
        nearest = match(workspace.knowledge, observation, at, found, facts)
        close = near(workspace.knowledge, observation, at, found, facts)
    known = cast(Any, {**state, "state_choice": nearest})
    table = proposer.table_of(known)
    _, kept = proposer.kept_on(known, table)
    if proposer.are_enough(known, kept):
        return None
    states, names = list[Near](), frozenset[str]()
    together = decides_together(plan, "state_selector")
    before = state.get("state_choice")
    if together and asks_model(plan, "state_selector", close, before, observation.signature):
        states, names = shown_to_model(known, close)
    return Question(table, (*kept, *sweep.swept_on(known)), states, names)


def _messages(workspace: Workspace, state: Reads, question: Question) -> tuple[Message, ...]:
    """Return the proposer's question, and what is asked besides at its end."""
    plan = state["plan"]
    more = {
        "states": [known_line(each) for each in question.states],
        "standing": [each.technique for each in question.standing],
        "step": state["step"] + 1,
        "steps": plan.steps,
        "explores": explores(plan, state["rollout"]),
    }
    return proposer.messages_on(
        workspace, cast(Any, state), question.table, question.standing, Besides("decide", more)
    )


def decision_on(question: Question) -> type[Decision]:
    """Return the form of a decision: each part as the agent alone would have it."""
    forms: dict[str, type[Reply]] = {"proposals": proposals_on(question.table)}
    if question.states:
        states = [each.state for each in question.states]
        forms["state"] = match_among(states, question.names)

    def check(reply: Decision) -> None:
        forms["proposals"].model_validate({"proposals": reply.model_dump()["proposals"]})
        if question.states:
            if reply.state is None:
                raise ValueError("`state` is asked for")
            forms["state"].model_validate(reply.state.model_dump())
        named = {each.technique for each in reply.proposals} | {STOP}
        named |= {each.technique for each in question.standing}
        if reply.choice.technique not in named:
            raise ValueError(f"`choice` is none of {', '.join(sorted(named))}")

    return checked(Decision, check)

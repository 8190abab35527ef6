"""State selector: match the signature with a known state, or discover a new one.

Reads plan, summary, observation and the snapshot; writes state_choice. A state fits when its
centroid is near AND its bottleneck agrees (KernelBlaster's matcher); otherwise a new state is
written. A model chooses among the nearest states whose bottleneck agrees, and names new ones; a new
state's place among the others is the signature's.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ..memory.knowledge_base import KnowledgeBase
from ..memory.records import PerformanceState, Signature
from ..memory.signature import distance
from ..tools.model_records import BUILTIN, Answer, Message
from ..tools.workspace import Workspace, open_knowledge
from .asked import asked, stand_in
from .progress import report_progress
from .prompts.render import render
from .records import Observation, RunPlan, StateChoice, TaskSummary
from .replies import StateMatch, checked

NEW = "new"
STATES_SHOWN = 8
"""Nearest states among which a model chooses."""


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    observation: Observation
    knowledge_at: int
    iteration: int
    rollout: int
    step: int


async def select_state(state: Reads) -> dict[str, Any]:
    """Choose the state of the current kernel."""
    plan = state["plan"]
    if plan.models.model_of("state_selector") == BUILTIN:
        choice = await asyncio.to_thread(_match, state)
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


def _match(state: Reads) -> StateChoice:
    observation = state["observation"]
    with open_knowledge(state["plan"].knowledge_directory) as knowledge:
        found, away, discovered = knowledge.match_state(
            Signature(values=observation.signature),
            observation.primary,
            observation.secondary,
            state["knowledge_at"],
        )
    reason = (
        f"no known state fits {observation.primary}: written as a new one"
        if discovered
        else f"nearest state whose bottleneck agrees ({observation.primary})"
    )
    return StateChoice(
        state=found, distance=away, discovered=discovered, reason=reason, author=BUILTIN
    )


def _add(plan: RunPlan, state: PerformanceState) -> None:
    # Idempotent: its id is a hash of its content, so a step replayed after a kill adds nothing;
    # rollouts of this iteration read the snapshot and so do not see it yet.
    with open_knowledge(plan.knowledge_directory) as knowledge:
        knowledge.add_state(state)


# By a model ----------------------------------------------------------------------------------


async def _ask(state: Reads) -> StateChoice:
    observation = state["observation"]
    near, fresh, names = await asyncio.to_thread(_known, state)

    def prepare(_: Workspace) -> tuple[tuple[Message, ...], type[StateMatch]]:
        return _messages(state, near), match_among(near, names)

    place = state["iteration"], state["rollout"], state["step"]
    answer = await asked(state["plan"], "state_selector", place, prepare)
    if answer.value is None:
        helped = await asyncio.to_thread(_match, state)
        return helped.model_copy(update={"author": stand_in(answer)})
    return chosen(answer, near, fresh, observation)


def _known(
    state: Reads,
) -> tuple[list[PerformanceState], tuple[PerformanceState, float, bool], frozenset[str]]:
    """Return the nearest states, what a new one would be, and the names that are taken."""
    observation = state["observation"]
    with open_knowledge(state["plan"].knowledge_directory) as knowledge:
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


def nearest(
    knowledge: KnowledgeBase, observation: Observation, at: int
) -> list[PerformanceState]:
    """Return the nearest states that name one of the kernel's two bottlenecks."""
    held = {observation.primary, observation.secondary} - {None}
    agreeing = [
        known
        for known in knowledge.states(at)
        if known.primary in held or known.secondary == observation.primary
    ]
    return sorted(agreeing, key=lambda known: (_away(known, observation), known.id))[:STATES_SHOWN]


def _away(known: PerformanceState, observation: Observation) -> float:
    return distance(observation.signature, known.centroid)


def _messages(state: Reads, near: list[PerformanceState]) -> tuple[Message, ...]:
    observation, summary = state["observation"], state["summary"]
    return render(
        "state_selector",
        state["plan"].models.context_of("state_selector"),
        name=summary.name,
        op_class=summary.op_class,
        dtype=summary.dtype,
        primary=observation.primary,
        secondary=observation.secondary,
        description=observation.description,
        features=observation.features,
        known=[_line(known, observation) for known in near],
    )


def _line(known: PerformanceState, observation: Observation) -> str:
    away = _away(known, observation)
    where = "within" if away <= known.spread else "outside"
    bound = f"{known.primary}, then {known.secondary}" if known.secondary else known.primary
    tries = f"; {known.count} steps of experience" if known.count else ""
    return (
        f"- {known.id}: {known.name} ({bound}; distance {away:.2f}, {where} its spread "
        f"{known.spread:.2f}{tries}). {known.description}"
    )


def match_among(near: list[PerformanceState], names: frozenset[str]) -> type[StateMatch]:
    """Return the form of a match: the id of a state shown, or a new state with its own name."""
    ids = {known.id for known in near}

    def check(match: StateMatch) -> None:
        if match.state != NEW:
            if match.state not in ids:
                raise ValueError(
                    f"{match.state[:80]} is none of the states listed: give one of "
                    f"{', '.join([*sorted(ids), NEW])}"
                )
        elif not (match.name and match.description):
            raise ValueError("a new state needs a name and a description")
        elif match.name in names:
            raise ValueError(f"a state is called {match.name} already: give its id, or a new name")

    return checked(StateMatch, check)


def chosen(
    answer: Answer[StateMatch],
    near: list[PerformanceState],
    fresh: tuple[PerformanceState, float, bool],
    observation: Observation,
) -> StateChoice:
    """Return the state that a model's match names; numbers are the signature's."""
    match = answer.value
    assert match is not None
    if match.state != NEW:
        (known,) = (each for each in near if each.id == match.state)
        away, discovered = _away(known, observation), False
    else:
        known, away, discovered = fresh
        if discovered:
            away = min((_away(each, observation) for each in near), default=away)
            known = known.model_copy(
                update={"name": match.name, "description": match.description}
            )
    return StateChoice(
        state=known,
        distance=away,
        discovered=discovered,
        reason=match.reason,
        author=answer.author,
    )

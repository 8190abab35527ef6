"""The state selector's question to a model: the nearest known states, or a new one with a name."""

from __future__ import annotations

from ...memory.knowledge.knowledge_base import KnowledgeBase
from ...memory.knowledge.signature import distance
from ...memory.records import PerformanceState
from ...tools.models.records import Answer, Message
from ..common.prompts.render import render
from ..records import Observation, RunPlan, StateChoice, TaskSummary
from .reply import NEW, StateMatch

STATES_SHOWN = 8
"""Nearest states among which a model chooses."""


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


def match_messages(
    plan: RunPlan, summary: TaskSummary, observation: Observation, near: list[PerformanceState]
) -> tuple[Message, ...]:
    """Return the prompt of the state selector."""
    return render(
        "state_selector",
        plan.models.context_of("state_selector"),
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

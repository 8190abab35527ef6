"""The state selector's question to a model: the nearest known states, or a new one with a name."""

from __future__ import annotations

from collections.abc import Sequence

from ...memory.knowledge.knowledge_base import KnowledgeBase
from ...memory.knowledge.states.distances import distance
from ...memory.knowledge.states.matching import Near, discover
from ...memory.knowledge.states.signature import explain
from ...memory.records.states import Signature
from ...tools.models.records import Answer, Message
from ..common.prompts.render import render
from ..records.observations import LaunchSeen, Observation, StateChoice
from ..records.plan import RunPlan
from ..records.task import TaskSummary
from .builtin import subject
from .reply import NEW, StateMatch

BY_WORDS = 3
"""States that are shown because their words are those of the kernel's description."""


def candidates(
    knowledge: KnowledgeBase,
    observation: Observation,
    close: Sequence[Near],
    at: int,
    device_kind: str,
) -> list[Near]:
    """Return the states among which a model chooses: the nearest by profile, then those by words.

    Args:
        knowledge: the knowledge base.
        observation: what the state extractor said.
        close: the nearest by profile.
        at: the snapshot.
        device_kind: where the kernel was profiled.
    """
    seen = subject(observation)
    words = f"{seen.primary} {seen.secondary or ''} {seen.description}"
    named = knowledge.search(words, device_kind, at, BY_WORDS, ("state",))
    states = (knowledge.state(each.name, at) for each in named)
    shown = {each.state.id for each in close}
    return [
        *close,
        *(
            Near(state, distance(seen.signature, state.centroid), 0.0, False)
            for state in states
            if state is not None and state.id not in shown
        ),
    ]


def match_messages(
    plan: RunPlan, summary: TaskSummary, observation: Observation, near: Sequence[Near]
) -> tuple[Message, ...]:
    """Return the prompt of the state selector."""
    seen = subject(observation)
    several = [each for each in observation.launches if each.kernel != getattr(seen, "kernel", "")]
    return render(
        "state_selector",
        plan.models.context_of("state_selector"),
        name=summary.name,
        op_class=summary.op_class,
        dtype=summary.dtype,
        primary=seen.primary,
        secondary=seen.secondary,
        description=seen.description,
        features=_features(observation, seen),
        others=[f"{each.kernel} ({each.share:.0%} of the time)" for each in several],
        known=[known_line(each) for each in near],
    )


def _features(observation: Observation, seen: LaunchSeen | Observation) -> tuple[str, ...]:
    if seen.signature == observation.signature:
        return observation.features
    return tuple(explain(Signature(values=seen.signature)))


def known_line(near: Near) -> str:
    """Return a known state on one line."""
    known = near.state
    where = "within" if near.within else "outside"
    fits = f"weight {near.weight:.0%}" if near.weight else "found by its words"
    bound = f"{known.primary}, then {known.secondary}" if known.secondary else known.primary
    tries = f"; {known.count} steps of experience" if known.count else ""
    return (
        f"- {known.id}: {known.name} ({bound}; distance {near.away:.2f}, {where} its reach; "
        f"{fits}{tries}). {known.description}"
    )


def chosen(
    answer: Answer[StateMatch],
    rule: StateChoice,
    near: Sequence[Near],
    seen: LaunchSeen | Observation,
) -> StateChoice:
    """Return the state that a model's match names; numbers are the signature's.

    Args:
        answer: of the model.
        rule: what the built-in selector says.
        near: the states that were shown.
        seen: the kernel.
    """
    match = answer.value
    assert match is not None
    said = {"reason": match.reason, "author": answer.author}
    new = discover(Signature(values=seen.signature), seen.primary, seen.secondary)
    wanted = new.id if match.state == NEW else match.state
    known = next((each for each in near if each.state.id == wanted), None)
    if known is not None:
        found = {"state": known.state, "distance": known.away, "discovered": False}
        return rule.model_copy(update={**said, **found})
    state = new.model_copy(update={"name": match.name, "description": match.description})
    away = near[0].away if near else 1.0
    return rule.model_copy(update={**said, "state": state, "distance": away, "discovered": True})

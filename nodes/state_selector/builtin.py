"""Built-in state selector: the nearest state within whose reach the kernel lies, or a new one."""

from __future__ import annotations

from collections.abc import Iterable

from ...memory.knowledge.knowledge_base import KnowledgeBase
from ...memory.knowledge.states.conditions import KernelFacts
from ...memory.knowledge.states.matching import Near
from ...memory.records.states import PerformanceState, Signature
from ...tools.models.records import BUILTIN
from ..records.observations import LaunchSeen, Observation, StateChoice


def subject(observation: Observation) -> LaunchSeen | Observation:
    """Return the kernel worth working on; the observation itself where none is listed."""
    return observation.target or observation


def near(
    knowledge: KnowledgeBase,
    observation: Observation,
    at: int,
    found: Iterable[PerformanceState] = (),
    facts: KernelFacts | None = None,
) -> list[Near]:
    """Return the states nearest to the kernel worth working on, as the snapshot `at` knows them.

    Args:
        knowledge: the knowledge base.
        observation: what the state extractor said.
        at: the snapshot.
        found: states that the rollout has discovered since.
        facts: what is known of all kernels of the task.
    """
    seen = subject(observation)
    signature = Signature(values=seen.signature)
    return knowledge.near_states(signature, seen.primary, seen.secondary, at, found, facts)


def match(
    knowledge: KnowledgeBase,
    observation: Observation,
    at: int,
    found: Iterable[PerformanceState] = (),
    facts: KernelFacts | None = None,
) -> StateChoice:
    """Return the state of the kernel worth working on; arguments as of `near`."""
    seen = subject(observation)
    state, away, discovered = knowledge.match_state(
        Signature(values=seen.signature), seen.primary, seen.secondary, at, found, facts
    )
    reason = (
        f"no known state is near enough to {seen.primary}: written as a new one"
        if discovered
        else f"nearest state by profile, {away:.2f} away"
    )
    return StateChoice(
        state=state,
        distance=away,
        discovered=discovered,
        launch=observation.target,
        reason=reason,
        author=BUILTIN,
    )

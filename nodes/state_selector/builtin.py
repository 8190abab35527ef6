"""Built-in state selector: the nearest state whose bottleneck agrees, or a new one."""

from __future__ import annotations

from ...memory.knowledge.knowledge_base import KnowledgeBase
from ...memory.records import Signature
from ...tools.models.records import BUILTIN
from ..records import LaunchSeen, Observation, StateChoice


def worth_working_on(observation: Observation) -> LaunchSeen | None:
    """Return the kernel of the program whose time above its own bound is longest, if any is listed.

    Of equal ones the first.
    """
    return max(observation.launches, key=lambda launch: launch.worth, default=None)


def match(knowledge: KnowledgeBase, observation: Observation, at: int) -> StateChoice:
    """Return the state of the kernel worth working on as the snapshot `at` knows it."""
    launch = worth_working_on(observation)
    seen = launch or observation
    found, away, discovered = knowledge.match_state(
        Signature(values=seen.signature), seen.primary, seen.secondary, at
    )
    reason = (
        f"no known state fits {seen.primary}: written as a new one"
        if discovered
        else f"nearest state whose bottleneck agrees ({seen.primary})"
    )
    return StateChoice(
        state=found,
        distance=away,
        discovered=discovered,
        launch=launch,
        reason=reason,
        author=BUILTIN,
    )

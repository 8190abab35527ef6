"""Built-in state selector: the nearest state whose bottleneck agrees, or a new one."""

from __future__ import annotations

from ...memory.knowledge.knowledge_base import KnowledgeBase
from ...memory.records import Signature
from ...tools.models.records import BUILTIN
from ..records import Observation, StateChoice


def match(knowledge: KnowledgeBase, observation: Observation, at: int) -> StateChoice:
    """Return the state of a kernel as the snapshot `at` knows it."""
    found, away, discovered = knowledge.match_state(
        Signature(values=observation.signature), observation.primary, observation.secondary, at
    )
    reason = (
        f"no known state fits {observation.primary}: written as a new one"
        if discovered
        else f"nearest state whose bottleneck agrees ({observation.primary})"
    )
    return StateChoice(
        state=found, distance=away, discovered=discovered, reason=reason, author=BUILTIN
    )

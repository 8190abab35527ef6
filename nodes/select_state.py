"""State selector: match the signature with a known state, or discover a new one.

Reads plan, observation and the snapshot; writes state_choice. A state fits when its centroid is
near AND its bottleneck agrees (KernelBlaster's matcher); otherwise a new state is written.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ..memory.records import PerformanceState, Signature
from ..tools.workspace import open_knowledge
from .progress import report_progress
from .records import Observation, RunPlan, StateChoice


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    observation: Observation
    knowledge_at: int
    iteration: int
    rollout: int
    step: int


async def select_state(state: Reads) -> dict[str, Any]:
    """Choose the state of the current kernel."""
    found, distance, discovered = await asyncio.to_thread(
        _match, state["plan"], state["observation"], state["knowledge_at"]
    )
    observation = state["observation"]
    fits = (
        f"no known state fits {observation.primary}: written as a new one"
        if discovered
        else f"nearest state whose bottleneck agrees ({observation.primary})"
    )
    choice = StateChoice(
        state=found,
        distance=distance,
        discovered=discovered,
        reason=fits,
        author="builtin",
    )
    report_progress(
        "state_choice",
        iteration=state["iteration"],
        rollout=state["rollout"],
        step=state["step"],
        state=found.name,
        discovered=discovered,
        distance=distance,
    )
    return {"state_choice": choice}


def _match(
    plan: RunPlan, observation: Observation, at: int
) -> tuple[PerformanceState, float, bool]:
    signature = Signature(values=observation.signature)
    with open_knowledge(plan.knowledge_directory) as knowledge:
        found, distance, discovered = knowledge.match_state(
            signature, observation.primary, observation.secondary, at
        )
        if discovered:
            # Idempotent: its id is a hash of its content, so a step replayed after a kill adds
            # nothing; rollouts of this iteration read the snapshot and so do not see it yet.
            knowledge.add_state(found)
        return found, distance, discovered

"""Optimization selector: the policy's best in the first rollout, Thompson sampling in the others.

Reads plan, proposals and the place in the run; writes choice (None ends the trajectory). Never
only the best past performer: weighted random among the best draws, seeded and reproducible.
"""

from __future__ import annotations

from typing import Any, TypedDict

from .builtin.selector import select
from .progress import report_progress
from .records import KernelPoint, Proposal, RunPlan, StateChoice


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    current: KernelPoint
    state_choice: StateChoice
    proposals: tuple[Proposal, ...]
    iteration: int
    rollout: int
    step: int


async def select_optimizations(state: Reads) -> dict[str, Any]:
    """Choose the technique to lower in this step."""
    choice = select(
        state["proposals"],
        seed=state["plan"].seed,
        iteration=state["iteration"],
        rollout=state["rollout"],
        step=state["step"],
        source_sha256=state["current"].source_sha256,
    )
    if choice is None:
        return {"choice": None, "ended": "no technique left that applies to this code"}
    report_progress(
        "choice",
        iteration=state["iteration"],
        rollout=state["rollout"],
        step=state["step"],
        state=state["state_choice"].state.name,
        technique=choice.technique,
        expected_gain=choice.expected_log_gain,
        success_probability=choice.success_probability,
        reason=choice.reason,
    )
    return {"choice": choice}

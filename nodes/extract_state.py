"""State extractor: the performance signature of the kernel at hand (KernelBlaster: states).

Reads plan and current; writes observation. The state is what the policy conditions on, so it is
taken from the newest profile at every step.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ..harness.records import Evaluation
from ..tools.workspace import open_workspace
from .builtin.describe_state import describe_state
from .progress import report_progress
from .records import KernelPoint, RunPlan


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    current: KernelPoint
    iteration: int
    rollout: int
    step: int


async def extract_state(state: Reads) -> dict[str, Any]:
    """Describe the current kernel's performance in words and numbers."""
    evaluation = await asyncio.to_thread(_evaluation, state["plan"], state["current"])
    assert evaluation.profile is not None
    observation = describe_state(evaluation.profile)
    report_progress(
        "state",
        iteration=state["iteration"],
        rollout=state["rollout"],
        step=state["step"],
        bottleneck=observation.primary,
        description=observation.description,
        microseconds=state["current"].microseconds,
    )
    return {"observation": observation}


def _evaluation(plan: RunPlan, point: KernelPoint) -> Evaluation:
    with open_workspace(plan.run_directory, plan.device, plan.gpu) as workspace:
        evaluation = workspace.store.get(point.evaluation_key)
    if evaluation is None:
        raise LookupError(f"run.sqlite holds no evaluation {point.evaluation_key}")
    return evaluation

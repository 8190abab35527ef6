"""Performance-gap analysis: why measurement and policy disagree.

Reads plan, policy_evaluation, trajectories; writes gap_analysis. Second part of the textual
gradient (KernelBlaster: performance-gap analysis).
"""

from __future__ import annotations

from typing import Any, TypedDict

from .builtin.gap_analyst import analyze
from .progress import report_progress
from .records import KernelPoint, PolicyEvaluation, RunPlan, Trajectory


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    iteration: int
    initial: KernelPoint
    policy_evaluation: PolicyEvaluation
    trajectories: dict[str, Trajectory]


async def analyze_performance_gap(state: Reads) -> dict[str, Any]:
    """Explain each disagreement, and name the sequences that worked."""
    trajectories = [
        trajectory
        for trajectory in state["trajectories"].values()
        if trajectory.iteration == state["iteration"]
    ]
    analysis = analyze(state["policy_evaluation"], trajectories)
    report_progress(
        "gap_analysis",
        iteration=state["iteration"],
        gaps=[
            {"kind": gap.kind, "technique": gap.technique, "explanation": gap.explanation}
            for gap in analysis.gaps
        ],
    )
    return {"gap_analysis": analysis}

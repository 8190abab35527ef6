"""State of each graph: a TypedDict of small frozen records, with its reducers."""

from __future__ import annotations

from typing import Annotated, TypedDict

from ..memory.records import Step
from ..nodes.records import (
    Attempt,
    Confirmation,
    GapAnalysis,
    KernelPoint,
    LoweringResult,
    Observation,
    OptimizeRequest,
    ParameterUpdate,
    PolicyEvaluation,
    Proposal,
    RunPlan,
    RunResult,
    SoftReview,
    StateChoice,
    TaskSummary,
    TechniqueChoice,
    Trajectory,
    merge_by_id,
    merge_reviews,
)


class OptimizeState(TypedDict, total=False):
    """The outer loop: iterations of rollouts and policy updates."""

    task: str
    start: str | None
    run: str | None
    dimensions: dict[str, int]

    plan: RunPlan
    summary: TaskSummary
    initial_source: str
    initial_author: str
    initial: KernelPoint
    best: KernelPoint
    iteration: int
    knowledge_at: int
    trajectories: Annotated[dict[str, Trajectory], merge_by_id]
    evaluated: PolicyEvaluation
    analysis: GapAnalysis
    update: ParameterUpdate
    confirmation: Confirmation
    soft_reviews: Annotated[dict[str, SoftReview], merge_reviews]
    result: RunResult


class OptimizeOutput(TypedDict, total=False):
    """What `optimize` returns to a parent."""

    result: RunResult


class RolloutState(TypedDict, total=False):
    """One trajectory: states, techniques and what they gained."""

    plan: RunPlan
    summary: TaskSummary
    iteration: int
    rollout: int
    knowledge_at: int
    start_point: KernelPoint

    current: KernelPoint
    best: KernelPoint
    step: int
    steps: tuple[Step, ...]
    passed: tuple[KernelPoint, ...]
    observation: Observation
    state_choice: StateChoice
    proposals: tuple[Proposal, ...]
    described: tuple[Proposal, ...]
    choice: TechniqueChoice | None
    result: LoweringResult
    ended: str
    trajectory: Trajectory


class RolloutInput(TypedDict):
    """What a rollout starts from."""

    plan: RunPlan
    summary: TaskSummary
    iteration: int
    rollout: int
    knowledge_at: int
    start_point: KernelPoint


class RolloutOutput(TypedDict, total=False):
    """What a rollout reports."""

    trajectory: Trajectory


class LoweringState(TypedDict, total=False):
    """One technique being written, compiled, verified and profiled."""

    plan: RunPlan
    summary: TaskSummary
    parent: KernelPoint
    choice: TechniqueChoice
    state_choice: StateChoice
    knowledge_at: int
    place: tuple[int, int, int]
    attempts: dict[int, Attempt]
    result: LoweringResult


class LoweringOutput(TypedDict, total=False):
    """What lowering came to."""

    result: LoweringResult


__all__ = [
    "LoweringOutput",
    "LoweringState",
    "OptimizeOutput",
    "OptimizeRequest",
    "OptimizeState",
    "RolloutInput",
    "RolloutOutput",
    "RolloutState",
]

"""State of each graph: a TypedDict of small frozen records, with its reducers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import with_config
from typing_extensions import TypedDict

from ..memory.records.states import PerformanceState
from ..nodes.records.choices import Proposal, TechniqueChoice
from ..nodes.records.gradient import GapAnalysis, ParameterUpdate, PolicyEvaluation
from ..nodes.records.kernels import KernelPoint, KnownStart
from ..nodes.records.lowering import Attempt, LoweringResult, ToolRound
from ..nodes.records.observations import Observation, StateChoice
from ..nodes.records.plan import RunPlan
from ..nodes.records.result import Confirmation, RunResult, ShapeCheck
from ..nodes.records.reviews import CandidateReview, SoftReview, merge_reviews
from ..nodes.records.rounds import Candidate, Feedback
from ..nodes.records.task import TaskSummary
from ..nodes.records.together import AnsweredTogether
from ..nodes.records.trajectories import Trajectory, merge_newest
from .channels import Merged, Recorded


@with_config(use_attribute_docstrings=True)
class OptimizeInput(TypedDict, total=False):
    """What `optimize` is asked: `load_task` says what of it cannot be served."""

    task: str
    """PyTorch reference in KernelBench form: the path of the file, or its text."""
    start: str | None
    """First CUDA kernel: the path of the file, or its text; without it one is written."""
    run: str | None
    """Run directory; by default runs/TASK-N."""
    dimensions: dict[str, int]
    """Dimensions at which candidates are verified, by name in the reference; by default small."""
    reading: dict[str, Any]
    """How the reference is read: mode, dtype and allow_degenerate, as in `Reading`."""


@with_config(use_attribute_docstrings=True)
class SearchState(OptimizeInput, total=False):
    """What every policy's run has: how it begins and how it ends."""

    plan: Annotated[RunPlan, Recorded]
    """What the run does, where and with what; an edit of iterations, rollouts, steps, rounds,
    repairs, seed, budgets or models takes effect at the next node."""
    summary: Annotated[TaskSummary, Recorded]
    """The task, in short."""
    initial_source: Annotated[str, Recorded]
    """sha256 of the first kernel's text in the run's artifacts."""
    initial_author: Annotated[str, Recorded]
    """Who wrote it."""
    known: Annotated[KnownStart | None, Recorded]
    """What earlier runs on this task or one of other sizes found, and whether it holds."""
    initial: Annotated[KernelPoint, Recorded]
    """The first kernel, measured: every gain is against it."""
    best: Annotated[KernelPoint, Recorded]
    """The fastest kernel so far: where the next iteration's first rollout begins."""
    iteration: Annotated[int, Recorded]
    """Policy updates done; none where nothing is learned."""
    knowledge_at: Annotated[int, Recorded]
    """Sequence number up to which the knowledge base is read in this iteration."""
    confirmation: Annotated[Confirmation, Recorded]
    """The winner, measured again."""
    soft_reviews: Annotated[dict[str, SoftReview], Merged(dict[str, SoftReview], merge_reviews)]
    """What the soft verifier said, by evaluation key."""
    shapes: Annotated[tuple[ShapeCheck, ...], Recorded]
    """What is announced, at shapes that the search never saw."""
    result: Annotated[RunResult, Recorded]
    """What the run announces."""


@with_config(use_attribute_docstrings=True)
class OptimizeState(SearchState, total=False):
    """The outer loop: iterations of rollouts and policy updates."""

    evaluations: Annotated[int, Recorded]
    """Distinct sources evaluated before this iteration."""
    trajectories: Annotated[dict[str, Trajectory], Merged(dict[str, Trajectory], merge_newest)]
    """What the newest iteration's rollouts came to, by ITERATION.ROLLOUT."""
    reflected: Annotated[AnsweredTogether | None, Recorded]
    """What a model said in one call as policy evaluation, gap analysis and parameter update; None
    where each asks by itself."""
    evaluated: Annotated[PolicyEvaluation, Recorded]
    """How well the policy predicted this iteration's gains; its reviews until they are read."""
    analysis: Annotated[GapAnalysis, Recorded]
    """Why it was wrong where it was; its gaps until parameter update has read them."""
    update: Annotated[ParameterUpdate, Recorded]
    """What changed in the knowledge base; its lessons until `keep_lessons` has read them: one that
    an edit leaves out is withdrawn."""


@with_config(use_attribute_docstrings=True)
class RoundsState(SearchState, total=False):
    """A policy that writes one candidate a round."""

    round: Annotated[int, Recorded]
    """Candidates written."""
    current: Annotated[KernelPoint, Recorded]
    """The last kernel that passed."""
    latest: Annotated[Candidate | None, Recorded]
    """What the last round wrote: all that the agents remember."""
    feedback: Annotated[Feedback | None, Recorded]
    """What the Judge says of it."""
    candidate: Annotated[Candidate | None, Recorded]
    """What this round wrote."""
    review: Annotated[CandidateReview | None, Recorded]
    """What the soft verifier says of it; None where it has not read it."""
    ended: Annotated[str, Recorded]
    """Why no more rounds follow; empty while some may."""


@with_config(use_attribute_docstrings=True)
class OptimizeOutput(TypedDict, total=False):
    """What `optimize` returns to a parent."""

    result: Annotated[RunResult, Recorded]
    """What the run announces."""


@with_config(use_attribute_docstrings=True)
class RolloutInput(TypedDict, total=False):
    """What a rollout starts from: a plan and a summary as `optimize` resolved them."""

    plan: Annotated[RunPlan, Recorded]
    """What the run does; its directory must be there."""
    summary: Annotated[TaskSummary, Recorded]
    """The task, in short."""
    iteration: Annotated[int, Recorded]
    """Policy updates done before."""
    rollout: Annotated[int, Recorded]
    """Which of the iteration's rollouts."""
    knowledge_at: Annotated[int, Recorded]
    """Sequence number up to which the knowledge base is read."""
    start_point: Annotated[KernelPoint, Recorded]
    """The kernel to begin at."""
    evaluations: Annotated[int, Recorded]
    """Distinct sources evaluated before this iteration."""
    evaluations_left: Annotated[int | None, Recorded]
    """Candidates that it may still have evaluated, where a cap ends the search; None: no cap."""


@with_config(use_attribute_docstrings=True)
class Departure(RolloutInput, total=False):
    """What a rollout is sent off with; without a start point one is found as it departs."""

    best: Annotated[KernelPoint, Recorded]
    """The fastest kernel so far."""


@with_config(use_attribute_docstrings=True)
class RolloutState(RolloutInput, total=False):
    """One trajectory: states, techniques and what they gained."""

    current: Annotated[KernelPoint, Recorded]
    """The kernel that the next technique is applied to."""
    best: Annotated[KernelPoint, Recorded]
    """The fastest of this trajectory."""
    step: Annotated[int, Recorded]
    """Techniques tried."""
    observation: Annotated[Observation, Recorded]
    """The current kernel's performance signature."""
    decided: Annotated[AnsweredTogether | None, Recorded]
    """What a model said in one call as selector of state and technique, and as proposer; None where
    each asks by itself."""
    state_choice: Annotated[StateChoice, Recorded]
    """The known state that fits it."""
    found_states: Annotated[tuple[PerformanceState, ...], Recorded]
    """States that this trajectory discovered: its next steps know them."""
    proposals: Annotated[tuple[Proposal, ...], Recorded]
    """Techniques on the table."""
    described: Annotated[tuple[Proposal, ...], Recorded]
    """Techniques that a model proposed newly, with what it says of them."""
    kept: Annotated[tuple[Proposal, ...], Recorded]
    """What models proposed in this trajectory, the newest first: what is not chosen stays on the
    table."""
    rejected: Annotated[tuple[str, ...], Recorded]
    """Techniques that a person does not want in this rollout."""
    choice: Annotated[TechniqueChoice | None, Recorded]
    """The technique to apply next."""
    result: Annotated[LoweringResult, Recorded]
    """What came of it."""
    ended: Annotated[str, Recorded]
    """Why the trajectory is over; empty while it is not."""
    over: Annotated[bool, Recorded]
    """Whether the whole search is over with it."""
    trajectory: Annotated[Trajectory, Recorded]
    """What the rollout reports."""


@with_config(use_attribute_docstrings=True)
class RolloutOutput(TypedDict, total=False):
    """What a rollout reports."""

    trajectory: Annotated[Trajectory, Recorded]
    """Its best kernel and why it ended."""


@with_config(use_attribute_docstrings=True)
class FirstKernelInput(TypedDict, total=False):
    """What the first kernel is written from."""

    plan: Annotated[RunPlan, Recorded]
    """What the run does; its directory must be there."""
    summary: Annotated[TaskSummary, Recorded]
    """The task, in short."""


@with_config(use_attribute_docstrings=True)
class FirstKernelOutput(TypedDict, total=False):
    """The first kernel."""

    initial_source: Annotated[str, Recorded]
    """sha256 of its text in the run's artifacts."""
    initial_author: Annotated[str, Recorded]
    """Who wrote it."""
    known: Annotated[KnownStart | None, Recorded]
    """What an earlier run found that the search begins with."""


@with_config(use_attribute_docstrings=True)
class FirstKernelState(FirstKernelInput, FirstKernelOutput, total=False):
    """The first kernel being written and read."""

    review: Annotated[CandidateReview | None, Recorded]
    """What the soft verifier says of it; None where it has not read it."""


@with_config(use_attribute_docstrings=True)
class LoweringState(TypedDict, total=False):
    """One technique being written, compiled, verified and profiled."""

    plan: Annotated[RunPlan, Recorded]
    """What the run does, where and with what."""
    summary: Annotated[TaskSummary, Recorded]
    """The task, in short."""
    parent: Annotated[KernelPoint, Recorded]
    """The kernel that the technique is applied to."""
    choice: Annotated[TechniqueChoice, Recorded]
    """The technique."""
    state_choice: Annotated[StateChoice, Recorded]
    """The performance state that the kernel is in."""
    knowledge_at: Annotated[int, Recorded]
    """Sequence number up to which the knowledge base is read."""
    place: Annotated[tuple[int, int, int], Recorded]
    """Iteration, rollout and step, from 0."""
    attempts: Annotated[dict[int, Attempt], Recorded]
    """Sources written so far and what each came to, by number."""
    rounds: Annotated[tuple[ToolRound, ...], Recorded]
    """Tools that the writer had called, and what they answered."""
    review: Annotated[CandidateReview | None, Recorded]
    """What the soft verifier says of the newest attempt; None where it has read none."""
    evaluations_left: Annotated[int | None, Recorded]
    """Candidates that may be evaluated, this one included; None: no cap."""
    result: Annotated[LoweringResult, Recorded]
    """What came of it."""


@with_config(use_attribute_docstrings=True)
class LoweringOutput(TypedDict, total=False):
    """What lowering came to."""

    result: Annotated[LoweringResult, Recorded]
    """What came of it."""


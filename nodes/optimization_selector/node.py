"""Optimization selector: the policy's best in the first rollout, Thompson sampling in the others.

Reads plan, proposals and the place in the run; writes choice (None ends the trajectory). Never
only the best past performer: weighted random among the best draws, seeded and reproducible. A model
is told what was drawn, and may choose another proposal for a reason.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from ...tools.models.records import BUILTIN, Message
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.asking import asked, stand_in
from ..records.choices import Proposal, TechniqueChoice
from ..records.kernels import KernelPoint
from ..records.observations import Observation, StateChoice
from ..records.plan import RunPlan
from ..records.task import TaskSummary
from ..records.together import AnsweredTogether
from .builtin import select
from .prompt import selector_messages
from .reply import STOP, Selection, selection_among


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    current: KernelPoint
    observation: Observation
    state_choice: StateChoice
    knowledge_at: int
    proposals: tuple[Proposal, ...]
    iteration: int
    rollout: int
    step: int
    decided: NotRequired[AnsweredTogether | None]


async def optimization_selector(state: Reads) -> dict[str, Any]:
    """Choose the technique to lower in this step."""
    proposals = state["proposals"]
    choice = select(
        proposals,
        state["plan"],
        iteration=state["iteration"],
        rollout=state["rollout"],
        step=state["step"],
        source_sha256=state["current"].source_sha256,
    )
    if choice is None:
        return _end(state, "no technique left that applies to this code")
    by_model = state["plan"].models.model_of("optimization_selector") != BUILTIN
    if by_model and len(proposals) > 1:
        asked_for = await _ask(state, choice)
        if isinstance(asked_for, str):
            return _end(state, f"the selector stopped: {asked_for}")
        choice = asked_for
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
        author=choice.author,
    )
    return {"choice": choice}


def _end(state: Reads, reason: str) -> dict[str, Any]:
    """Return the end of the trajectory, told."""
    report_progress(
        "ended", iteration=state["iteration"], rollout=state["rollout"], step=state["step"],
        reason=reason,
    )  # fmt: skip
    return {"choice": None, "ended": reason}


async def _ask(state: Reads, drawn: TechniqueChoice) -> TechniqueChoice | str:
    """Return a model's choice, or its reason to choose nothing."""
    def prepare(workspace: Workspace) -> tuple[tuple[Message, ...], type[Selection]]:
        return selector_messages(workspace, state, drawn), selection_among(state["proposals"])

    place = state["iteration"], state["rollout"], state["step"]
    answer = await asked(
        state["plan"], "optimization_selector", place, prepare, state.get("decided")
    )
    selection = answer.value
    if selection is None:
        return drawn.model_copy(update={"author": stand_in(answer)})
    if selection.technique == STOP:
        return selection.reason
    (chosen,) = (each for each in state["proposals"] if each.technique == selection.technique)
    return TechniqueChoice.of(
        chosen,
        sampled_score=chosen.expected.score,
        reason=selection.reason,
        author=answer.author,
    )



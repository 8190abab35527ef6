"""Optimization selector: the policy's best in the first rollout, Thompson sampling in the others.

Reads plan, proposals and the place in the run; writes choice (None ends the trajectory). Never
only the best past performer: weighted random among the best draws, seeded and reproducible. A model
is told what was drawn, and may choose another proposal for a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from ...memory.records import Optimization, Step
from ...tools.models.records import BUILTIN, Message
from ...tools.progress import report_progress
from ...tools.workspace import Workspace, open_knowledge
from ..common.asking import asked, stand_in
from ..common.prompts.experience import (
    ceiling_text,
    expected_text,
    gain_text,
    path_text,
    tried_text,
)
from ..common.prompts.measurements import attainable, profile_text, summary_text
from ..common.prompts.render import render
from ..common.randomness import explores
from ..common.replies import checked
from ..common.steps import known_steps
from ..common.untried import MOST_EXPECTED, NEW_SHARE
from ..records import (
    KernelPoint,
    Observation,
    Proposal,
    RunPlan,
    StateChoice,
    TaskSummary,
    TechniqueChoice,
)
from .builtin import select
from .reply import Selection

STOP = "stop"
"""What a model answers where nothing proposed can gain; no technique may be called so."""


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
    steps: tuple[Step, ...]


async def select_optimizations(state: Reads) -> dict[str, Any]:
    """Choose the technique to lower in this step."""
    proposals = state["proposals"]
    choice = select(
        proposals,
        seed=state["plan"].seed,
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
        return _messages(workspace, state, drawn), selection_among(state["proposals"])

    place = state["iteration"], state["rollout"], state["step"]
    answer = await asked(state["plan"], "optimization_selector", place, prepare)
    selection = answer.value
    if selection is None:
        return drawn.model_copy(update={"author": stand_in(answer)})
    if selection.technique == STOP:
        return selection.reason
    (chosen,) = (each for each in state["proposals"] if each.technique == selection.technique)
    return TechniqueChoice(
        technique=chosen.technique,
        optimization=chosen.optimization,
        settings=chosen.settings,
        expected_log_gain=chosen.expected.mean_log,
        success_probability=chosen.expected.success_probability,
        prepared_log=chosen.expected.prepared_log,
        sampled_score=chosen.expected.score,
        reason=selection.reason,
        author=answer.author,
    )


def selection_among(proposals: tuple[Proposal, ...]) -> type[Selection]:
    """Return the form of a choice: the name of a proposal, or `stop`."""
    names = [proposal.technique for proposal in proposals]

    def check(selection: Selection) -> None:
        if selection.technique not in (*names, STOP):
            raise ValueError(
                f"{selection.technique[:80]} was not proposed: choose one of {', '.join(names)}, "
                f"or {STOP}"
            )

    return checked(Selection, check)


def _messages(
    workspace: Workspace, state: Reads, drawn: TechniqueChoice
) -> tuple[Message, ...]:
    plan, current = state["plan"], state["current"]
    task = workspace.task(state["summary"].artifact)
    evaluation = workspace.store.get(current.evaluation_key)
    if evaluation is None:
        raise LookupError(f"run.sqlite holds no evaluation {current.evaluation_key}")
    identity = workspace.measured_by
    with open_knowledge(plan.knowledge_directory) as knowledge:
        seed = knowledge.seed().techniques
    ranked = sorted(state["proposals"], key=lambda each: (-each.expected.score, each.technique))
    assert evaluation.profile is not None and evaluation.timing is not None
    ceiling = attainable(task, evaluation.profile, evaluation.timing)
    return render(
        "optimization_selector",
        plan.models.context_of("optimization_selector"),
        path=path_text(current.path),
        summary=summary_text(task, evaluation.profile, evaluation.timing),
        profile=profile_text(evaluation.profile),
        name=task.name,
        op_class=task.op_class,
        dtype=task.dtype,
        gpu=identity.gpu,
        state=state["state_choice"].state.name,
        observation=state["observation"].description,
        proposals=[
            _line(proposal, _rank(proposal, state["proposals"]), seed, ceiling)
            for proposal in ranked
        ],
        ranked=[proposal for proposal in ranked if proposal.source == "model"]
        != [proposal for proposal in state["proposals"] if proposal.source == "model"],
        rollouts=plan.rollouts,
        tried=tried_text(known_steps(workspace, state), current.source_sha256),
        step=state["step"] + 1,
        steps=plan.steps,
        explores=explores(state["rollout"]),
        drawn=drawn.technique,
    )


def _rank(proposal: Proposal, proposals: tuple[Proposal, ...]) -> int | None:
    """Return a model's rank of its proposal; the knowledge base's are in order already."""
    if proposal.source != "model":
        return None
    return [each.technique for each in proposals].index(proposal.technique) + 1


def _line(
    proposal: Proposal,
    rank: int | None,
    seed: Mapping[str, Optimization],
    ceiling: float | None,
) -> str:
    expected = proposal.expected
    words = [expected_text(expected) + ceiling_text(expected.mean_log, ceiling)]
    card = proposal.optimization
    if card is not None:
        words.append(f"a new technique: {card.description.rstrip('.')}")
        if rank is not None and expected.trials < 0.5 and card.prior_log_gain:
            more = " or more" if card.prior_log_gain >= MOST_EXPECTED else ""
            words.append(
                f"as proposed {gain_text(card.prior_log_gain / NEW_SHARE)}{more}; discounted"
            )
    if rank is not None:
        words.append(f"rank {rank}")
    if abs(expected.prepared_log) >= 0.02:
        words.append(f"{gain_text(expected.prepared_log)} in what later steps gain")
    known = card or seed.get(proposal.technique)
    avoid = f" Avoid when: {known.avoid_when}" if known and known.avoid_when else ""
    return f"- {proposal.technique} ({'; '.join(words)}). {proposal.reason}{avoid}"

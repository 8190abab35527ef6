"""The optimization selector's question to a model: what could be tried, and what it promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...memory.records.optimizations import Optimization
from ...tools.models.records import Message
from ...tools.wording.experience import (
    ceiling_text,
    expected_text,
    gain_text,
    lessons_text,
    tried_text,
)
from ...tools.wording.measurements import attainable, profile_text, summary_text
from ...tools.workspace import Workspace
from ..common.history.steps import path_to, visible_steps
from ..common.outlook.facts_at_hand import facts_at_hand
from ..common.outlook.untried import MOST_EXPECTED, NEW_SHARE
from ..common.prompts.path import path_text
from ..common.prompts.render import render
from ..common.randomness import explores
from ..records.choices import Proposal, TechniqueChoice

State = Mapping[str, Any]
"""What the node reads."""


def selector_messages(
    workspace: Workspace, state: State, drawn: TechniqueChoice
) -> tuple[Message, ...]:
    """Return the prompt of the optimization selector; `drawn` is what the built-in one chose."""
    plan, current = state["plan"], state["current"]
    task = workspace.task(state["summary"].artifact)
    evaluation = workspace.evaluation(current.evaluation_key)
    identity = workspace.measured_by
    steps = visible_steps(workspace, (state["iteration"], state["rollout"], state["step"]))
    seed = workspace.knowledge.seed().techniques
    remembers = plan.memory != "off"
    ranked = list(state["proposals"])
    if remembers:
        ranked.sort(key=lambda each: -each.expected.score)  # Of equals the proposer's first.
    assert evaluation.profile is not None and evaluation.timing is not None
    several = len({launch.kernel for launch in evaluation.profile.launches}) > 1
    ceiling = attainable(task, evaluation.profile, evaluation.timing)
    return render(
        "optimization_selector",
        plan.models.context_of("optimization_selector"),
        path=path_text(path_to(current.source_sha256, steps)),
        summary=summary_text(task, evaluation.profile, evaluation.timing),
        profile=profile_text(evaluation.profile),
        name=task.name,
        op_class=task.op_class,
        dtype=task.dtype,
        gpu=identity.gpu,
        state=state["state_choice"].state.name,
        observation=state["observation"].description,
        remembers=remembers,
        proposals=[
            _line(
                proposal, _rank(proposal, state["proposals"]), seed, ceiling, remembers, several
            )
            for proposal in ranked
        ],
        ranked=[proposal for proposal in ranked if proposal.source == "model"]
        != [proposal for proposal in state["proposals"] if proposal.source == "model"],
        rollouts=plan.rollouts,
        lessons=lessons_text(
            workspace.knowledge.lessons(state["knowledge_at"]) if remembers else (),
            state=state["state_choice"].state.id,
            op_class=task.op_class,
            device_kind=identity.kind,
            techniques=[proposal.technique for proposal in state["proposals"]],
            facts=facts_at_hand(
                workspace, plan, state["summary"], evaluation.profile,
                path_to(current.source_sha256, steps),
            ),
        ),
        tried=tried_text(steps, current.source_sha256),
        step=state["step"] + 1,
        steps=plan.steps,
        explores=explores(plan, state["rollout"]),
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
    remembers: bool,
    several: bool,
) -> str:
    expected = proposal.expected
    words = []
    if remembers:
        words.append(expected_text(expected) + ceiling_text(expected.mean_log, ceiling))
    if several:
        words.append(f"on {proposal.launch}")
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
    known = card or seed.get(proposal.technique)
    avoid = f" Avoid when: {known.avoid_when}" if known and known.avoid_when else ""
    told = f" ({'; '.join(words)})." if words else ":"
    return f"- {proposal.technique}{told} {proposal.reason}{avoid}"

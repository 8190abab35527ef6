"""Approve the technique: have a person agree before a chosen one is written into the kernel.

Reads the choice and what was on the table; writes choice (another where a person edited it, None
where one rejected it), and then proposals and rejected: what is rejected is out for this rollout,
the selector chooses among the rest, and the reason is a lesson of the knowledge base.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from ....harness.errors import UserError, shown
from ....memory.records.policy import ExpectedGain
from ....tools.rewriting.target import targets_of
from ....tools.techniques.catalogue import first_rewrites
from ....tools.workspace import Workspace
from ...common.history.lesson import write_lesson
from ...common.outlook.policy_context import aimed_at, kernel_in_context
from ...common.stopping.approval import PERSON, decided, is_asked
from ...common.stopping.questions import (
    Decision,
    Expected,
    Misunderstood,
    TechniqueQuestion,
    cost_of,
)
from ...common.workspaces import opened, workspace_of
from ...records.choices import Proposal, TechniqueChoice
from ...records.kernels import KernelPoint
from ...records.observations import Observation, StateChoice
from ...records.plan import RunPlan
from ...records.task import TaskSummary

OTHERS_SHOWN = 12
"""What else is on the table."""


class Reads(TypedDict):
    """What this node reads."""

    plan: RunPlan
    summary: TaskSummary
    current: KernelPoint
    observation: Observation
    state_choice: StateChoice
    knowledge_at: int
    proposals: tuple[Proposal, ...]
    choice: TechniqueChoice
    rejected: NotRequired[tuple[str, ...]]
    iteration: int
    rollout: int
    step: int


async def approve_technique(state: Reads) -> dict[str, Any]:
    """Stop until a person has decided about the technique, where that is asked for."""
    choice = await wanted_technique(state)
    state, plan = Reads(**{**state, "choice": choice}), state["plan"]
    if not await is_asked(plan, "technique"):
        return {"choice": choice}
    async with opened(plan) as workspace:
        question = await asyncio.to_thread(_question, workspace, state)
    settled = await decided(plan, question, lambda decision: _settle(state, decision))
    if not isinstance(settled, str):
        return {"choice": settled}
    where = state["state_choice"].state
    await asyncio.to_thread(
        write_lesson,
        plan,
        state["summary"],
        f"{choice.technique} in the state {where.name}: rejected by a person: {settled}",
        kind="condition",
        author=PERSON,
        iteration=state["iteration"],
        technique=choice.technique,
        state=where.id,
    )
    return {
        "choice": None,
        "proposals": tuple(p for p in state["proposals"] if p.technique != choice.technique),
        "rejected": (*state.get("rejected", ()), choice.technique),
    }


async def wanted_technique(state: Reads) -> TechniqueChoice:
    """Return the choice; where a person edited it, with what is known of what the edit names.

    Raises:
        UserError: nobody knows the technique, or it has no such parameters.
    """
    choice = state["choice"]
    if choice.author != PERSON:
        return choice
    try:
        return await asyncio.to_thread(_chosen, state, choice.technique, choice.settings)
    except Misunderstood as error:
        raise UserError(f"the edited choice: {error}; edit it anew") from error


def _settle(state: Reads, decision: Decision) -> TechniqueChoice | str:
    """Return the choice to go on with, or why it is rejected.

    Raises:
        Misunderstood: an edit names a technique or a parameter that nobody knows.
    """
    if decision.verdict == "reject":
        return decision.reason
    if decision.verdict == "accept":
        return state["choice"]
    understood = 'a technique is edited by {"technique": NAME, "parameters": {NAME: VALUE}}'
    wanted = decision.edit.get("technique", state["choice"].technique)
    parameters = decision.edit.get("parameters", {})
    if not (decision.edit.keys() <= {"technique", "parameters"} and isinstance(parameters, dict)):
        raise Misunderstood(f"{shown(decision.edit)} is no edit: {understood}")
    return _chosen(state, wanted, (parameters,))


def _chosen(
    state: Reads, technique: Any, parameters: Sequence[dict[str, Any]]
) -> TechniqueChoice:
    """Return a person's choice of a technique, with the settings that have given parameters."""
    proposal = _proposal(state, technique)
    settings = tuple(each for some in parameters or ({},) for each in narrowed(proposal, some))
    return TechniqueChoice.of(
        proposal.model_copy(update={"settings": settings}),
        sampled_score=proposal.expected.score,
        reason="chosen by a person",
        author=PERSON,
    )


def _proposal(state: Reads, technique: Any) -> Proposal:
    """Return what is on the table under a name, or what the knowledge base knows under it."""
    for proposal in state["proposals"]:
        if proposal.technique == technique:
            return proposal
    plan, at = state["plan"], state["knowledge_at"]
    with workspace_of(plan) as workspace:
        if technique not in workspace.knowledge.seed().techniques:
            names = ", ".join(each.technique for each in state["proposals"])
            raise Misunderstood(f"no technique {shown(technique)} is known; on the table: {names}")
        place = state["iteration"], state["rollout"], state["step"]
        context = kernel_in_context(workspace, plan, state["summary"], state["current"], place)
        assert context.kernel is not None
        kernels = [each.kernel for each in context.kernel.launches]
        source = workspace.artifacts.get_text(state["current"].source_sha256)
        made = first_rewrites(source, workspace.task(state["summary"].artifact), kernels)
        context = aimed_at(context, targets_of(made, source, kernels))
        where = state["state_choice"].state
        (known,) = workspace.knowledge.beliefs(where, [technique], context, at)
    return Proposal(
        technique=known.optimization.technique,
        source=PERSON,
        settings=known.settings or ({},),
        launch=known.launch,
        expected=known.expected,
        author=PERSON,
    )


def narrowed(proposal: Proposal, parameters: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the settings of a proposal that have the given parameter values.

    Raises:
        Misunderstood: it has none such.
    """
    found = tuple(
        setting
        for setting in proposal.settings
        if all(name in setting and setting[name] == value for name, value in parameters.items())
    )
    if found:
        return found
    values: dict[str, list[Any]] = {}
    for setting in proposal.settings:
        for name, value in setting.items():
            if value not in values.setdefault(name, []):
                values[name].append(value)
    known = [f"{name} {', '.join(map(json.dumps, values[name]))}" for name in sorted(values)]
    raise Misunderstood(
        f"{proposal.technique} has no setting {shown(parameters)}: it takes "
        f"{'; '.join(known) or 'no parameters'}"
    )


def _question(workspace: Workspace, state: Reads) -> TechniqueQuestion:
    choice, where = state["choice"], state["state_choice"].state
    table = {each.technique: each.expected for each in state["proposals"]}
    ranked = sorted(table, key=lambda name: (-table[name].score, name))
    return TechniqueQuestion(
        run=state["plan"].run,
        asks=f"Write {choice.technique} into the kernel of rollout {state['iteration'] + 1}."
        f"{state['rollout'] + 1}, step {state['step'] + 1}?",
        cost=cost_of(workspace),
        answers=(
            "accept",
            "reject:REASON",
            'edit:{"technique": NAME, "parameters": {NAME: VALUE}}, either may be left out',
        ),
        iteration=state["iteration"] + 1,
        rollout=state["rollout"] + 1,
        step=state["step"] + 1,
        technique=choice.technique,
        parameters=choice.settings[0] if choice.settings else {},
        state=where.name,
        observation=state["observation"].description,
        microseconds=state["current"].microseconds,
        why=choice.reason,
        author=choice.author,
        expected=_gain(choice, table.get(choice.technique)),
        success_probability=choice.success_probability,
        others={
            name: round(math.exp(table[name].mean_log), 3)
            for name in [name for name in ranked if name != choice.technique][:OTHERS_SHOWN]
        },
    )


def _gain(choice: TechniqueChoice, belief: ExpectedGain | None) -> Expected:
    """Return the gain with its spread; without one where the choice was not on the table."""
    mean, spread = choice.expected_log_gain, belief.std_log if belief else 0.0
    return Expected(
        gain=math.exp(mean), low=math.exp(mean - spread), high=math.exp(mean + spread)
    )

"""Optimization proposer: put techniques on the table for this code in this state.

Reads plan, summary, current, state_choice, observation, described, kept; writes
proposals and, of those that a model made, kept and described: one that is not chosen stays on the
table. Where enough of them were made for the very kernel, compact agents ask for no more.
Sources: the knowledge base's optimizations for the state and its neighbours, what applies to the
code though the knowledge base does not list it there, and what a model thinks of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import Any, NotRequired, TypedDict

from ...harness.records.tasks import Task
from ...harness.vetting.symbols import bare_name
from ...memory.records.evidence import Step
from ...tools.models.records import BUILTIN, Message
from ...tools.progress import report_progress
from ...tools.rewriting.records import Inapplicable, Rewritten
from ...tools.rewriting.target import targets_of
from ...tools.techniques.catalogue import (
    Fitness,
    first_rewrite,
    first_rewrites,
    fitness,
    techniques,
)
from ...tools.workspace import Workspace
from ..common.asking import asked, stand_in
from ..common.history.steps import Place, path_to, visible_steps
from ..common.outlook.facts_at_hand import facts_at_hand
from ..common.outlook.policy_context import aimed_at, kernel_in_context, policy_context
from ..common.prompts.render import Besides
from ..common.workspaces import workspace_of
from ..records.choices import Proposal
from ..records.kernels import KernelPoint
from ..records.observations import Observation, StateChoice
from ..records.plan import RunPlan
from ..records.task import TaskSummary
from ..records.together import AnsweredTogether
from .builtin import macro_rewrites, propose
from .kept import FEWEST, by_models, of_earlier_rollouts, still_on, together
from .prompt import proposals_of, proposals_on, proposer_messages
from .reply import Proposals
from .table import Table, described_in, kernel_at_hand, refusals

REAL_GAIN = 0.02
"""Log gain above which a step changed the situation (about 2 %)."""


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    current: KernelPoint
    observation: Observation
    state_choice: StateChoice
    knowledge_at: int
    iteration: int
    rollout: int
    step: int
    described: NotRequired[tuple[Proposal, ...]]
    kept: NotRequired[tuple[Proposal, ...]]
    rejected: NotRequired[tuple[str, ...]]
    decided: NotRequired[AnsweredTogether | None]


async def optimization_proposer(state: Reads) -> dict[str, Any]:
    """List what could be tried here, with the policy's expected gain of each."""
    table = await asyncio.to_thread(table_of, state)
    by_model = state["plan"].models.model_of("optimization_proposer") != BUILTIN
    told: dict[str, Any] = {}
    changes: dict[str, Any] = {}
    if by_model:
        before, kept = await asyncio.to_thread(kept_on, state, table)
        if are_enough(state, kept):
            proposals, told["kept"] = kept, [each.technique for each in kept]
        else:
            proposals, told = await _ask(state, table, kept)
        changes["described"] = _described(state, proposals)
        changes["kept"] = together(before, by_models(proposals))
    else:
        proposals = _builtin(table)
        told["inapplicable"] = table.inapplicable
    told["withheld"] = dict(table.withheld)
    report_progress(
        "proposals",
        iteration=state["iteration"],
        rollout=state["rollout"],
        step=state["step"],
        techniques=[p.technique for p in proposals],
        **told,
    )
    return {"proposals": proposals, **changes}


def kept_on(state: Reads, table: Table) -> tuple[tuple[Proposal, ...], tuple[Proposal, ...]]:
    """Return what models proposed so far, and what of it is still on the table here.

    A trajectory begins with what earlier ones were told of the kernel that it begins at.
    """
    before, at, place = state.get("kept", ()), state["knowledge_at"], _place(state)
    with workspace_of(state["plan"]) as workspace:
        steps = visible_steps(workspace, place)
        if state["step"] == 0:
            sha256 = state["current"].source_sha256
            before = of_earlier_rollouts(workspace, steps, sha256)
        chosen = {
            step.technique for step in steps if (step.iteration, step.rollout) == place[:2]
        }
        before = tuple(each for each in before if each.technique not in chosen)
        return before, still_on(table, before, workspace.knowledge, at)


def are_enough(state: Reads, kept: Sequence[Proposal]) -> bool:
    """Say whether nobody is asked for more than was proposed before."""
    sha256 = state["current"].source_sha256
    own = sum(each.made_for == sha256 for each in kept)
    return state["plan"].agents == "compact" and own >= FEWEST


def _described(state: Reads, proposals: tuple[Proposal, ...]) -> tuple[Proposal, ...]:
    """Return the proposals of the trajectory so far that a model described, each name once."""
    found = {each.technique: each for each in (*proposals, *state.get("described", ()))}
    return tuple(each for _, each in sorted(found.items()) if each.optimization is not None)


def _builtin(table: Table) -> tuple[Proposal, ...]:
    return propose(table.known, table.unlisted, table.reasons, cards=table.cards())


def table_of(state: Reads) -> Table:
    """Return what could be tried, as the knowledge base stood when the iteration began."""
    plan, current = state["plan"], state["current"]
    with workspace_of(plan) as workspace:
        task = workspace.task(state["summary"].artifact)
        source = workspace.artifacts.get_text(current.source_sha256)
        identity = workspace.measured_by
        steps = visible_steps(workspace, _place(state))
        at, where = state["knowledge_at"], state["state_choice"].state
        withheld = withheld_here(workspace, state, steps)
        evaluation = workspace.evaluation(current.evaluation_key)
        assert evaluation.profile is not None
        kernels = [share.kernel for share in evaluation.profile.by_kernel]
        tries = tried_here(steps, state, kernels)
        made = first_rewrites(source, task, kernels, tries)
        targets = targets_of(made, source, kernels)
        by_model = plan.models.model_of("kernel_writer") != BUILTIN
        by_rewrite = not by_model or plan.models.rewrites_first
        settled = _settled(tries, targets if by_rewrite else {})
        tried = (*settled, *state.get("rejected", ()), *withheld)
        fit = Fitness({}, {})
        if by_model:
            path = path_to(current.source_sha256, steps)
            fit = fitness(techniques(), kernel_at_hand(task, source, evaluation, path))
        context = kernel_in_context(
            workspace, plan, state["summary"], current, _place(state), tried=tried,
            able=fit.kernels,
        )  # fmt: skip
        knowledge = workspace.knowledge
        offered = knowledge.offered(where, context, at)
        macros = macro_rewrites(offered, source, task, kernels)
        made |= macros
        context = aimed_at(context, targets | targets_of(macros, source, kernels))
        reasons = {
            technique: found.reason if isinstance(found, Inapplicable) else None
            for technique, found in made.items()
        }
        able = {technique for technique, why in reasons.items() if why is None}
        # What no rewrite can do to this source only a model could write: nothing is asked of it.
        known = knowledge.candidates(where, context, at, None if by_model else able)
        deprecated = knowledge.deprecated(where, context, at)
        known_here = {card.technique for card in offered} | set(tried) | deprecated
        beyond = set(reasons) if by_model else able
        if by_model and plan.memory == "off":  # No state lists what a model could write.
            beyond |= fit.kernels.keys()
        unlisted = knowledge.beliefs(where, sorted(beyond - known_here), context, at)
        asks = plan.models.model_of("optimization_proposer") != BUILTIN
        lessons = knowledge.lessons(at) if asks else []
        described = described_in(knowledge, identity.kind, at)
        seed = frozenset(knowledge.seed().techniques)
    described |= {
        each.technique: each.optimization
        for each in state.get("described", ())
        if each.optimization
    }
    if plan.memory == "live":
        described |= {step.technique: step.optimization for step in steps if step.optimization}
    return Table(
        where=where,
        context=context,
        known=known,
        unlisted=unlisted,
        reasons=reasons,
        inapplicable=sum(card.technique not in able for card in offered),
        refused=refusals(tried, deprecated, lessons, where.id) | withheld,
        withheld=withheld,
        unfit=fit.unfit,
        seed=seed,
        described=described,
        lessons=lessons,
        remembers=plan.memory != "off",
        written_by_model=by_model,
        by_rewrite=by_rewrite,
        changes=partial(_changes, source, task, tries),
    )


def withheld_here(workspace: Workspace, state: Reads, steps: Sequence[Step]) -> dict[str, str]:
    """Return what the policy's edits and conditions keep from the kernel at hand, and why."""
    summary, current = state["summary"], state["current"]
    path = path_to(current.source_sha256, steps)
    profile = workspace.evaluation(current.evaluation_key).profile
    assert profile is not None
    facts = facts_at_hand(workspace, state["plan"], summary, profile, path)
    where, at = state["state_choice"].state, state["knowledge_at"]
    context = policy_context(workspace.measured_by, summary)
    return workspace.knowledge.withheld(where, facts, context, at)


def _place(state: Reads) -> Place:
    return state["iteration"], state["rollout"], state["step"]


def tried_here(
    steps: Sequence[Step], state: Reads, kernels: Sequence[str]
) -> frozenset[tuple[str, str]]:
    """Return the techniques not worth trying again on kernels of this source, each with the bare
    name of the kernel; with none for all, where the program has one: it may have had another name.

    Those tried on this very source, and those that this rollout tried without gain since its last
    real gain (neutral changes since then give them no new chance). `steps` are those that the
    rollout may know of.
    """
    parent = state["current"].source_sha256
    found = [step for step in steps if step.parent_sha256 == parent]
    for step in reversed(steps):
        if (step.iteration, step.rollout) != (state["iteration"], state["rollout"]):
            break
        if step.log_gain is not None and step.log_gain > REAL_GAIN:
            break
        found.append(step)
    several = len(kernels) > 1
    return frozenset(
        (step.technique, bare_name(step.launch) if several and step.launch else "")
        for step in found
    )


def _changes(
    source: str, task: Task, tries: Set[tuple[str, str]], technique: str, kernel: str
) -> bool:
    """Say whether a technique's rewrite can change one kernel of the program, where it was not
    tried."""
    known = techniques().get(technique)
    rewrite = known.rewrite if known else None
    if rewrite is None or tries & {(technique, bare_name(kernel)), (technique, "")}:
        return False
    return isinstance(first_rewrite(rewrite, source, task, [kernel]), Rewritten)


def _settled(
    tries: Set[tuple[str, str]], targets: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the techniques tried that no rewrite does to another kernel of the program; a macro
    that was tried is one."""
    left = {
        technique for technique, target in targets.items()
        if not tries & {(technique, bare_name(target)), (technique, "")}
    }
    return tuple(sorted({technique for technique, _ in tries} - left))


# By a model ----------------------------------------------------------------------------------


async def _ask(
    state: Reads, table: Table, kept: tuple[Proposal, ...]
) -> tuple[tuple[Proposal, ...], dict[str, Any]]:
    def prepare(workspace: Workspace) -> tuple[tuple[Message, ...], type[Proposals]]:
        return messages_on(workspace, state, table, kept), proposals_on(table)

    answer = await asked(
        state["plan"], "optimization_proposer", _place(state), prepare, state.get("decided")
    )
    if answer.value is None:
        author = stand_in(answer)
        return (
            tuple(each.model_copy(update={"author": author}) for each in _builtin(table)),
            {"inapplicable": table.inapplicable, "author": author},
        )

    def settle() -> tuple[tuple[Proposal, ...], dict[str, str]]:
        with workspace_of(state["plan"]) as workspace:
            knowledge = workspace.knowledge
            return proposals_of(answer, table, knowledge, state["knowledge_at"])

    proposals, refused = await asyncio.to_thread(settle)
    new = [each.technique for each in proposals if each.optimization is not None]
    named = {each.technique for each in proposals}
    proposals += tuple(each for each in kept if each.technique not in named)
    return proposals, {"refused": refused, "new": new, "author": answer.author}


def messages_on(
    workspace: Workspace, state: Reads, table: Table, kept: Sequence[Proposal],
    besides: Besides | None = None,
) -> tuple[Message, ...]:  # fmt: skip
    """Return the question; `kept` is on the table already."""
    current = state["current"]
    evaluation = workspace.evaluation(current.evaluation_key)
    return proposer_messages(
        workspace,
        state["plan"],
        workspace.task(state["summary"].artifact),
        current,
        evaluation,
        state["observation"],
        visible_steps(workspace, _place(state)),
        table,
        kept,
        besides,
    )

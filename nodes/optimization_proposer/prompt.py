"""Proposals of a model: what it is shown, which it may make, what is expected of new ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...harness.records.evaluations import Evaluation
from ...harness.records.tasks import Task
from ...memory.knowledge.knowledge_base import KnowledgeBase
from ...memory.knowledge.policy.policy import Prospect
from ...memory.knowledge.snapshots.edits import OTHER_OPERATORS
from ...memory.records.evidence import Step
from ...memory.records.optimizations import Optimization
from ...tools.models.records import Answer, Message
from ...tools.techniques.catalogue import techniques
from ...tools.techniques.conditions import OTHER_TASK
from ...tools.techniques.operators import WITH_PRODUCTS, may_compute
from ...tools.wording.experience import (
    ceiling_text,
    expected_text,
    gain_text,
    lessons_text,
)
from ...tools.wording.measurements import attainable
from ...tools.workspace import Workspace
from ..common.history.losers import lost_before
from ..common.history.steps import path_to
from ..common.outlook.untried import MOST_EXPECTED, NEW_SHARE, NEW_STRENGTH
from ..common.prompts.render import Besides, render
from ..common.prompts.subject import kernel_context, task_context
from ..common.prompts.tried import came_by, tried_on
from ..common.replies import checked
from ..records.choices import Proposal
from ..records.kernels import KernelPoint
from ..records.observations import Observation
from ..records.plan import RunPlan
from .reply import Proposals, ProposedTechnique
from .table import Table, kernel_at_hand

KNOWN_SHOWN = 7
"""Known techniques whose expected gain is told."""
OTHERS_SHOWN = 4
"""Of the others, those with the most expected, of which is told what they do; of the rest the name
alone, for a list of all of them helps nobody."""
MOST_KERNELS = 12
"""Kernels of a program that a proposal is asked to choose from, by name."""

# The question --------------------------------------------------------------------------------


def proposer_messages(
    workspace: Workspace,
    plan: RunPlan,
    task: Task,
    current: KernelPoint,
    evaluation: Evaluation,
    observation: Observation,
    steps: Sequence[Step],
    table: Table,
    kept: Sequence[Proposal] = (),
    besides: Besides | None = None,
) -> tuple[Message, ...]:
    """Return the prompt of the optimization proposer.

    `steps` are those it may know of, `kept` what is on the table whatever it says, `besides`
    what is asked at its end.
    """
    source = workspace.artifacts.get_text(current.source_sha256)
    path = path_to(current.source_sha256, steps)
    assert evaluation.profile is not None and evaluation.timing is not None
    ceiling = attainable(task, evaluation.profile, evaluation.timing)
    at_hand = kernel_at_hand(task, source, evaluation, path)
    names = {*table.seed, *table.described}
    unfitting = {name: reason for name, reason in table.unfit.items() if name in names}
    listed = _listed(table, unfitting)
    context = task_context(task, workspace.measured_by)
    if not may_compute(task, *WITH_PRODUCTS):
        context["tensor"] = ""
    return render(
        "optimization_proposer",
        plan.models.context_of("optimization_proposer"),
        besides,
        **context,
        **kernel_context(task, source, evaluation, path),
        written_by_model=table.written_by_model,
        state=f"{table.where.name}. {table.where.description}",
        observation=observation.description,
        known=[_line(each, ceiling, len(table.kernels) > 1) for each in listed.shown],
        kernels=table.kernels[:MOST_KERNELS] if len(table.kernels) > 1 else (),
        others=listed.others,
        by_name=listed.by_name,
        left_out=listed.left_out,
        tried=tried_on(workspace, steps, current.source_sha256, evaluation),
        came=came_by(workspace, task, steps, evaluation),
        kept=", ".join(each.technique for each in kept),
        lost=lost_before(steps, current.source_sha256),
        lessons=lessons_text(
            table.lessons,
            state=table.where.id,
            op_class=task.op_class,
            device_kind=table.context.device_kind,
            facts=at_hand.facts(),
        ),
        refused=refused_lines({
            name: reason
            for name, reason in table.refused.items()
            if not (name in table.withheld and name in unfitting)
        }),
    )  # fmt: skip


def refused_lines(refused: Mapping[str, str]) -> list[str]:
    """Return a line a reason, with all techniques that it keeps from being proposed.

    Those that have no work in the task are not named: nobody misses them, and they are most.
    """
    named: dict[str, list[str]] = {}
    for name, reason in sorted(refused.items()):
        named.setdefault(reason, []).append(name)
    others = named.pop(OTHER_OPERATORS, None)
    lines = [f"- {', '.join(names)}: {reason}" for reason, names in named.items()]
    if others:
        lines.append("- whatever works on operators that this task does not have")
    return lines


class Listed(NamedTuple):
    """The techniques that a prompt speaks of."""

    shown: list[Prospect]
    """Told with card and gain."""
    others: list[str]
    """A line each."""
    by_name: list[str] = []
    left_out: list[str] = []
    """Those that would be expected to gain here, but for a condition that does not hold."""


def _listed(table: Table, unfitting: Mapping[str, str]) -> Listed:
    """Return the techniques to speak of, the best first.

    What a built-in rewrite must write was already asked whether it applies.
    """
    able = table.shown()
    most = KNOWN_SHOWN if table.remembers else 0
    if not table.written_by_model:
        others = [] if table.remembers else [each.optimization for each in able]
        return Listed(able[:most], [f"- {card.technique}: {card.description}" for card in others])
    named = {*table.seed, *table.described}
    names = {name for name in named if table.refusal(name) is None or name in table.withheld}
    why = {name: reason for name, reason in unfitting.items() if name in names}
    names -= table.withheld.keys()
    library = techniques()
    fit = names - set(why)
    conditional = {name for name in fit if name in library and library[name].precondition}
    hopeful = [each for each in able if each.optimization.technique in fit - conditional]
    shown = hopeful[:most]
    told = [each.optimization.technique for each in hopeful[most:]]
    rest = sorted(fit - conditional - {each.optimization.technique for each in hopeful})
    if table.remembers:
        rest = told[OTHERS_SHOWN:] + rest
        # What a model once described says too little by its name.
        told = told[:OTHERS_SHOWN] + [name for name in rest if name in table.described]
        rest = [name for name in rest if name not in table.described]
    else:
        told, rest = sorted((*told, *rest)), []
    texts = {name: (table.described.get(name) or library[name]).description for name in told}
    texts |= {name: library[name].precondition for name in sorted(conditional)}
    expected = {each.optimization.technique for each in able} | table.withheld.keys()
    return Listed(
        shown,
        [f"- {name}: {text}" for name, text in texts.items()],
        rest,
        # Nobody misses a matrix product's techniques in a softmax.
        [name for name, reason in why.items() if reason != OTHER_TASK and name in expected],
    )


def _line(prospect: Prospect, ceiling: float | None, several: bool) -> str:
    optimization, expected = prospect.optimization, prospect.expected
    avoid = f" Avoid when: {optimization.avoid_when}" if optimization.avoid_when else ""
    gain = (
        expected_text(expected)
        if expected.trials >= 0.5
        else f"expected {gain_text(expected.mean_log)}"
    )
    gain += ceiling_text(expected.mean_log, ceiling)
    gain += f", on {prospect.launch}" if several else ""
    return (
        f"- {optimization.technique}: {optimization.description} Applies when: "
        f"{optimization.applies_when}{avoid} ({gain})"
    )


# The answer ----------------------------------------------------------------------------------


def proposals_on(table: Table) -> type[Proposals]:
    """Return the form of proposals: at least one of them may be made, else the reasons why not."""

    def check(reply: Proposals) -> None:
        # Of a program of one kernel there is nothing to name.
        several = len(table.kernels) > 1
        named = (each.launch for each in reply.proposals if each.launch and several)
        unknown = [each for each in named if table.named(each) is None]
        if unknown:
            raise ValueError(
                f"the file launches no kernel called {', '.join(each[:80] for each in unknown)}: "
                f"`launch` is one of {', '.join(table.kernels)}"
            )
        refused = [
            f"{proposed.technique}: {reason}"
            for proposed in reply.proposals
            if (reason := why_not(proposed, table)) is not None
        ]
        if len(refused) == len(reply.proposals):
            raise ValueError(f"none of these can be tried: {'; '.join(refused)}")

    return checked(Proposals, check)


def why_not(proposed: ProposedTechnique, table: Table) -> str | None:
    """Return why a proposal is refused; None where it is taken."""
    technique = proposed.technique
    if technique == "stop":
        return "that is no technique"
    reason = table.refusal(technique)
    if reason is None and proposed.new is None:
        if technique not in table.seed and technique not in table.described:
            return "nothing describes it: fill in `new`, or take a name of the lists"
    return reason


def proposals_of(
    answer: Answer[Proposals], table: Table, knowledge: KnowledgeBase, at: int
) -> tuple[tuple[Proposal, ...], dict[str, str]]:
    """Return what a model's reply puts on the table, in its order, and what was refused and why.

    What is expected of a technique is the policy's belief; of one that nobody tried, a part of what
    the model expects, with little strength.
    """
    assert answer.value is not None
    taken: dict[str, ProposedTechnique] = {}
    refused: dict[str, str] = {}
    for proposed in answer.value.proposals:
        reason = why_not(proposed, table)
        if reason is not None:
            refused[proposed.technique] = reason
        else:
            taken.setdefault(proposed.technique, proposed)
    known = {each.optimization.technique: each for each in (*table.known, *table.unlisted)}
    cards = {name: card_of(proposed, table) for name, proposed in taken.items()}
    aims = {name: table.named(proposed.launch) for name, proposed in taken.items()}
    aimed = {name: kernel for name, kernel in aims.items() if kernel is not None}
    asked = [cards[name] or name for name in taken if name not in known or name in aimed]
    for each in knowledge.beliefs(table.where, asked, table.aimed(aimed), at):
        known[each.optimization.technique] = each
    out = {name: "refused in this run" for name in taken if not known[name].settings}
    return (
        tuple(
            Proposal(
                technique=name,
                source="model",
                settings=known[name].settings,
                launch=known[name].launch,
                expected=known[name].expected,
                optimization=cards[name],
                reason=proposed.reason,
                author=answer.author,
                made_for=table.context.kernel.source_sha256 if table.context.kernel else "",
            )
            for name, proposed in taken.items()
            if name not in out
        ),
        refused | out,
    )


def card_of(proposed: ProposedTechnique, table: Table) -> Optimization | None:
    """Return what somebody wrote of a technique; None where the seed describes it."""
    if proposed.technique in table.seed:
        return None
    return table.described.get(proposed.technique) or new_optimization(proposed)


def new_optimization(proposed: ProposedTechnique) -> Optimization:
    """Return a technique in a model's words, with a weak prior from what it expects."""
    new = proposed.new
    assert new is not None
    expected = NEW_SHARE * math.log(new.expected_speedup)
    return Optimization(
        technique=proposed.technique,
        description=new.description,
        applies_when=new.applies_when,
        avoid_when=new.avoid_when,
        side_effects=new.side_effects,
        notes=new.notes,
        parameters={each.name: list(dict.fromkeys(each.values)) for each in new.parameters},
        prior_log_gain=min(max(expected, -MOST_EXPECTED), MOST_EXPECTED),
        prior_strength=NEW_STRENGTH,
    )

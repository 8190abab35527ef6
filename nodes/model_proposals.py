"""Proposals of a model: what it is shown, which it may make, what is expected of new ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..harness.records import Evaluation, Task
from ..memory.knowledge_base import KnowledgeBase
from ..memory.records import (
    ExpectedGain,
    Lesson,
    Optimization,
    PerformanceState,
    PolicyContext,
    SettingGain,
    Step,
)
from ..tools.model_records import Answer, Message
from ..tools.workspace import Workspace
from .builtin.proposer import settings_of
from .prompt_context.common import kernel_context, task_context
from .prompt_context.experience import expected_text, lessons_text, tried_text
from .prompts.render import render
from .records import KernelPoint, Observation, Proposal, RunPlan
from .replies import Proposals, ProposedTechnique, checked

KNOWN_SHOWN = 14
"""Known techniques whose expected gain is told; of the others the names alone."""
NEW_SHARE = 0.5
"""Of the log gain that a model expects of its own technique: nobody measured it yet."""
MOST_EXPECTED = math.log(3.0)
"""Log gain that is expected of an untried technique at most."""
NEW_STRENGTH = 0.5
"""Observations that such an expectation is worth."""

FORBIDDEN: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset("cublas cublaslt cudnn cutlass cute cufft cusparse thrust pytorch torch".split()),
        "libraries are refused: the file computes by itself",
    ),
    (frozenset({"graph", "graphs"}), "CUDA graphs are refused: launch() only enqueues work"),
    (frozenset({"cooperative_launch", "grid_sync", "grid_synchronization"}),
     "cooperative launches are refused"),
    (frozenset({"multi_stream", "multiple_streams", "streams"}),
     "all work goes to the stream given"),
    (frozenset({"memoize", "memoization", "cache_results", "cache_output", "reuse_results"}),
     "nothing may be kept from one call to the next"),
    (frozenset({"compiler_flags", "nvcc_flags", "compile_flags", "use_fast_math_flag"}),
     "the file is built with fixed options"),
    (frozenset({"skip_computation", "hard_code", "hardcode", "hardcoded", "precompute_output"}),
     "the whole result is computed from the inputs"),
)  # fmt: skip
"""Words of a technique's name, and why no file may do that."""


class Table(NamedTuple):
    """What could be tried on a kernel, as of the iteration's snapshot."""

    where: PerformanceState
    context: PolicyContext
    known: list[tuple[Optimization, ExpectedGain]]
    """Of the knowledge base, for the state and its neighbours, the best first."""
    unlisted: list[tuple[Optimization, ExpectedGain]]
    """What a built-in rewrite could do though the knowledge base does not list it there."""
    reasons: Mapping[str, str | None]
    """Why a built-in rewrite does not apply to the code; None where it does."""
    measured: Mapping[str, Sequence[SettingGain]]
    """What parameter settings gained."""
    refused: Mapping[str, str]
    """Techniques that may not be proposed, and why."""
    seed: frozenset[str]
    """Names of the seed's techniques, which the knowledge base describes wherever they are."""
    described: Mapping[str, Optimization]
    """The others that somebody described: models, in this run or in earlier ones."""
    lessons: list[Lesson]
    written_by_model: bool
    """Whether lowering can write what no built-in rewrite can."""

    def shown(self) -> list[tuple[Optimization, ExpectedGain]]:
        """Return the techniques that can be written here, those with the most expected first."""
        able = [
            (self.described.get(optimization.technique, optimization), expected)
            for optimization, expected in (*self.known, *self.unlisted)
            if self.refusal(optimization.technique) is None
        ]
        return sorted(able, key=lambda pair: (-pair[1].score, pair[0].technique))

    def cards(self) -> dict[str, Optimization | None]:
        """Return every technique that a model can be asked to write: what is said of it, None where
        the seed says it."""
        if not self.written_by_model:
            return {}
        return {**self.described, **dict.fromkeys(self.seed)}

    def refusal(self, technique: str) -> str | None:
        """Return why a technique may not be proposed; None where it may."""
        if technique in self.refused:
            return self.refused[technique]
        if not self.written_by_model:
            return self.reasons.get(technique, "nothing here can write it")
        return forbidden(technique)


def forbidden(technique: str) -> str | None:
    """Return why no file may do what a technique's name says; None where nothing is against it."""
    padded = f"_{technique}_"
    return next(
        (why for words, why in FORBIDDEN if any(f"_{word}_" in padded for word in words)), None
    )


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
) -> tuple[Message, ...]:
    """Return the prompt of the optimization proposer; `steps` are those it may know of."""
    source = workspace.artifacts.get_text(current.source_sha256)
    shown = table.shown()
    others = {name for name in (*table.seed, *table.described) if table.refusal(name) is None}
    others -= {optimization.technique for optimization, _ in shown[:KNOWN_SHOWN]}
    return render(
        "optimization_proposer",
        plan.models.context_of("optimization_proposer"),
        **task_context(task, workspace.measured_by),
        **kernel_context(task, source, evaluation, current.path),
        written_by_model=table.written_by_model,
        state=f"{table.where.name}. {table.where.description}",
        observation=observation.description,
        known=[_line(*pair) for pair in shown[:KNOWN_SHOWN]],
        others=", ".join(sorted(others)) if table.written_by_model else "",
        tried=tried_text(steps, current.source_sha256),
        lessons=lessons_text(
            table.lessons,
            state=table.where.id,
            op_class=task.op_class,
            device_kind=table.context.device_kind,
        ),
        refused=sorted(table.refused.items()),
    )


def _line(optimization: Optimization, expected: ExpectedGain) -> str:
    return (
        f"- {optimization.technique}: {optimization.description} Applies when: "
        f"{optimization.applies_when} ({expected_text(expected)})"
    )


# The answer ----------------------------------------------------------------------------------


def proposals_on(table: Table) -> type[Proposals]:
    """Return the form of proposals: at least one of them may be made, else the reasons why not."""

    def check(reply: Proposals) -> None:
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
    believed = {found.technique: expected for found, expected in (*table.known, *table.unlisted)}
    cards = {name: card_of(proposed, table) for name, proposed in taken.items()}
    asked = [cards[name] or name for name in taken if name not in believed]
    for found, expected in knowledge.beliefs(table.where, asked, table.context, at):
        believed[found.technique] = expected
    return (
        tuple(
            Proposal(
                technique=name,
                source="model",
                settings=settings_of(
                    cards[name] or knowledge.seed().techniques[name], table.measured.get(name, ())
                ),
                expected=believed[name],
                optimization=cards[name],
                reason=proposed.reason,
                author=answer.author,
            )
            for name, proposed in taken.items()
        ),
        refused,
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

"""The conversation of a lowering: the file and the technique, then each attempt and its failure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...harness.records.evaluations import Evaluation
from ...harness.records.tasks import Task
from ...memory.knowledge.policy.policy import Prospect
from ...memory.records.lessons import Lesson
from ...memory.records.optimizations import Optimization
from ...memory.records.policy import ExpectedGain
from ...tools.for_agents.desk import kernel_id
from ...tools.models.asking import estimate_tokens
from ...tools.models.code_reply import fenced, holds_edits
from ...tools.models.records import Message
from ...tools.wording.experience import (
    expected_text,
    gain_text,
    lessons_text,
    settings_text,
    technique_text,
)
from ...tools.workspace import Workspace
from ..common.history.losers import lost_before
from ..common.history.steps import path_to, visible_steps
from ..common.outlook.policy_context import aimed_at, kernel_in_context
from ..common.prompts.render import conversation
from ..common.prompts.repair import repair_messages, reply_words
from ..common.prompts.subject import kernel_context, task_context
from ..common.prompts.tried import came_by, tried_on
from ..records.choices import TechniqueChoice
from ..records.kernels import KernelPoint
from ..records.lowering import Attempt
from ..records.plan import RunPlan
from .tool_rounds import MOST_ROUNDS, NO_MORE, may_call, round_messages, without_more

State = Mapping[str, Any]
"""What kernel_writer reads."""


class Experience(NamedTuple):
    """What the knowledge base holds on the chosen technique in this situation."""

    optimization: Optimization
    prospect: Prospect
    lessons: list[Lesson]


def lowering_messages(workspace: Workspace, state: State) -> tuple[Message, ...]:
    """Return the whole conversation up to the question that is open now."""
    plan: RunPlan = state["plan"]
    task = workspace.task(state["summary"].artifact)
    exchanges: list[tuple[Message, ...]] = []
    for attempt in state["attempts"].values():
        exchanges += round_messages(workspace, state, attempt.number)
        if attempt.source_sha256 is not None:
            exchanges.append(_exchange(workspace, task, attempt, state["choice"].technique))
    exchanges += round_messages(workspace, state, len(state["attempts"]))
    budget = plan.models.context_of("kernel_writer")
    if not may_call(state):
        budget -= estimate_tokens(NO_MORE)
    messages = conversation(
        "kernel_writer", budget, exchanges, **lowering_context(workspace, state, task)
    )
    return messages if may_call(state) else without_more(messages)


def lowering_context(workspace: Workspace, state: State, task: Task) -> dict[str, Any]:
    """Return what the kernel writer's template speaks of."""
    parent: KernelPoint = state["parent"]
    choice = state["choice"]
    source = workspace.artifacts.get_text(parent.source_sha256)
    evaluation = workspace.evaluation(parent.evaluation_key)
    identity = workspace.measured_by
    known = _experience(workspace, state)
    remembers = state["plan"].memory != "off"
    steps = visible_steps(workspace, state["place"])
    found = task_context(task, identity) | kernel_context(
        task, source, evaluation, path_to(parent.source_sha256, steps)
    )
    card = technique_text(known.optimization)
    if "tensor" not in f"{choice.technique} {known.optimization.description}".lower():
        found["tensor"] = ""
    return found | {
        "rounds": MOST_ROUNDS if state["plan"].writer == "tools" else 0,
        "file_id": kernel_id(parent.source_sha256),
        "technique": card,
        "technique_name": choice.technique,
        "target": choice.launch if _several(evaluation) else "",
        "parameters": json.dumps(choice.settings[0]) if any(choice.settings[:1]) else "",
        "expected": _expected(choice, known.prospect.expected) if remembers else "",
        "settings": settings_text(known.prospect) if remembers else "",
        "lessons": lessons_text(
            known.lessons,
            state=_state_id(state),
            op_class=task.op_class,
            device_kind=identity.kind,
            techniques=(choice.technique,),
        ),
        "tried": tried_on(workspace, steps, parent.source_sha256, evaluation),
        "came": came_by(workspace, task, steps, evaluation),
        "lost": lost_before(steps, parent.source_sha256),
    }


def _several(evaluation: Evaluation) -> bool:
    """Say whether the file launches several kernels."""
    return evaluation.profile is not None and len(evaluation.profile.by_kernel) > 1


def _exchange(
    workspace: Workspace, task: Task, attempt: Attempt, technique: str
) -> tuple[Message, ...]:
    """Return an attempt as the model gave it, and what was found wrong with it."""
    source = workspace.artifacts.get_text(str(attempt.source_sha256))
    said = reply_words(workspace, attempt.reply_sha256) or fenced(source)
    key = workspace.evaluator.key(task, source)
    return (
        Message(role="assistant", content=said),
        *repair_messages(
            workspace.store.get(key), source, numbered=holds_edits(said), keep=technique
        ),
    )


def _experience(workspace: Workspace, state: State) -> Experience:
    choice, at, knowledge = state["choice"], state.get("knowledge_at"), workspace.knowledge
    context = kernel_in_context(
        workspace, state["plan"], state["summary"], state["parent"], state["place"],
    )  # fmt: skip
    if choice.launch:
        context = aimed_at(context, {choice.technique: choice.launch})
    where = state["state_choice"].state if "state_choice" in state else knowledge.states(at)[0]
    (prospect,) = knowledge.beliefs(where, [choice.technique], context, at)
    return Experience(
        optimization=choice.optimization or prospect.optimization,
        prospect=prospect,
        lessons=knowledge.lessons(at),
    )


def _expected(choice: TechniqueChoice, believed: ExpectedGain) -> str:
    """Return what is expected; of a technique that nobody knew, what its proposer was believed."""
    if choice.optimization is None or believed.trials >= 0.5:
        return expected_text(believed)
    return f"expected {gain_text(choice.expected_log_gain)}, a guess: it was never tried"


def _state_id(state: State) -> str:
    return str(state["state_choice"].state.id) if "state_choice" in state else ""




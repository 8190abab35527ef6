"""The initial CUDA's conversation with a model: the task, then what each attempt lacked."""

from __future__ import annotations

from ...harness.records import Evaluation, Task
from ...tools.models.records import Message
from ...tools.workspace import Workspace
from ..common.prompts.render import render
from ..common.prompts.repair import repair_messages
from ..common.prompts.subject import task_context
from ..records import RunPlan


def first_messages(plan: RunPlan, workspace: Workspace, task: Task) -> tuple[Message, ...]:
    """Return the prompt that asks for a first kernel."""
    # Not measured_by: it changes when another host's first result arrives, and with it the prompt.
    context = task_context(task, workspace.device.identity)
    return render("initial_cuda", plan.models.context_of("initial_cuda"), **context)


def mending_messages(said: str, evaluation: Evaluation, source: str) -> tuple[Message, ...]:
    """Return what is said after an attempt that failed: its words, and what was wrong."""
    return (
        Message(role="assistant", content=said),
        *repair_messages(evaluation, source, numbered=False, keep=""),
    )

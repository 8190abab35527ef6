"""The initial CUDA's conversation with a model: the task, then what each attempt lacked."""

from __future__ import annotations

from collections.abc import Sequence

from ...harness.records.evaluations import Evaluation
from ...harness.records.tasks import Task
from ...tools.first_kernel.kernels.missing import Sketch
from ...tools.models.records import Message
from ...tools.workspace import Workspace
from ..common.prompts.render import conversation
from ..common.prompts.repair import repair_messages
from ..common.prompts.subject import bounds_context, task_context
from ..records.plan import RunPlan
from .known import Example


def first_messages(
    plan: RunPlan,
    workspace: Workspace,
    task: Task,
    rest: Sketch | None,
    solution: str = "",
    examples: Sequence[Example] = (),
    mended: Sequence[tuple[Message, ...]] = (),
) -> tuple[Message, ...]:
    """Return the prompt that asks for a first kernel, or for what a generated one lacks.

    Or to restate a `solution` as one. `examples` are known kernels of like tasks, `mended` what
    was said of each attempt that failed.
    """
    # Not measured_by: it changes when another host's first result arrives, and with it the prompt.
    identity = workspace.device.identity
    context = task_context(task, identity) | bounds_context(task, identity)
    context |= {"solution": solution, "examples": examples}
    wanted = [(each, _line(task, each.line)) for each in rest.missing] if rest else []
    budget = plan.models.context_of("initial_cuda")
    return conversation("initial_cuda", budget, mended, **context, rest=rest, wanted=wanted)


def mending_messages(said: str, evaluation: Evaluation, source: str) -> tuple[Message, ...]:
    """Return what is said after an attempt that failed: its words, and what was wrong."""
    return (
        Message(role="assistant", content=said),
        *repair_messages(evaluation, source, numbered=False, keep=""),
    )


def _line(task: Task, line: int | None) -> str:
    """Return a line of the reference; empty where it is not known."""
    lines = task.source.splitlines()
    return lines[line - 1].strip() if line and line <= len(lines) else ""

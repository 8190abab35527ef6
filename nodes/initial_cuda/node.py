"""Initial CUDA: turn the PyTorch reference into a first, correct kernel.

Reads plan and summary; writes initial_source and initial_author. A person's kernel (`--start`)
takes its place. What a model writes is evaluated here, and mended where it fails; where no attempt
passes, the built-in writer's kernel stands.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from ...harness.errors import UserError
from ...harness.files import read_source
from ...harness.records import Evaluation, Outcome, Record, Task, outcome_in_words
from ...tools.evaluation.evaluator import Evaluator
from ...tools.first_kernel.writer import NotWritten
from ...tools.first_kernel.writer import write_initial_cuda as write_builtin
from ...tools.models.asking import MalformedReply
from ...tools.models.code_reply import CodeReply, read_code
from ...tools.models.records import BUILTIN, Message
from ...tools.progress import report_progress
from ...tools.workspace import Workspace, open_workspace
from ..common.awaited import awaited
from ..common.budgeted import budgeted
from ..common.prompts.render import render
from ..common.prompts.repair import repair_messages, reply_words
from ..common.prompts.subject import task_context
from ..common.workspaces import opened
from ..records import NOT_ITS_FAULT, RunPlan, TaskSummary

MOST_ATTEMPTS = 4
"""Of a model: without a first kernel there is no run."""


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary


class Written(Record):
    """A first kernel and who wrote it."""

    source: str
    author: str


async def write_initial_cuda(state: Reads) -> dict[str, Any]:
    """Write or read the first kernel and store its text.

    Raises:
        UserError: `--start` cannot be read, or nothing here can write CUDA for this reference.
    """
    plan, summary = state["plan"], state["summary"]
    if plan.start_path or plan.models.model_of("initial_cuda") == BUILTIN:
        return await asyncio.to_thread(_write, plan, summary)
    written = await budgeted(lambda: _write_by_model(plan, summary))
    return await asyncio.to_thread(_store, plan, written)


def _write(plan: RunPlan, summary: TaskSummary) -> dict[str, Any]:
    if plan.start_path:
        written = Written(source=read_source(Path(plan.start_path)), author="person")
    else:
        with open_workspace(plan.run_directory, plan.device, plan.gpu) as workspace:
            task = workspace.task(summary.artifact)
        written = Written(source=_translate(task), author=BUILTIN)
    return _store(plan, written)


def _store(plan: RunPlan, written: Written) -> dict[str, Any]:
    with open_workspace(plan.run_directory, plan.device, plan.gpu) as workspace:
        sha256 = workspace.artifacts.put_text(written.source)
    report_progress("initial", author=written.author, lines=written.source.count("\n") + 1)
    return {"initial_source": sha256, "initial_author": written.author}


def _translate(task: Task) -> str:
    written = write_builtin(task)
    if isinstance(written, NotWritten):
        raise UserError(
            f"no initial CUDA for {task.name}: {written.reason}; "
            "give a first kernel with --start KERNEL.cu, or a model that writes one with "
            "--model initial_cuda=openai:NAME"
        )
    return written.source


async def _write_by_model(plan: RunPlan, summary: TaskSummary) -> Written:
    """Return the first of a model's attempts that passes, else the built-in kernel.

    Raises:
        UserError: neither can write one.
    """
    model = plan.models.model_of("initial_cuda")
    async with opened(plan) as workspace:
        task = await asyncio.to_thread(workspace.task, summary.artifact)
        messages = await asyncio.to_thread(_first_messages, plan, workspace, task)
        asker = workspace.asker(plan.models)
        evaluator = Evaluator(workspace.device, workspace.store)
        failed: list[str] = []
        why = ""
        for number in range(MOST_ATTEMPTS):
            answer = await asker.text("initial_cuda", (number,), messages, _reader(failed))
            if answer.value is None:
                why = answer.reason
                break
            source = str(answer.value.source)
            evaluation = await awaited(
                plan, workspace, partial(evaluator.evaluate, task, source)
            )
            if evaluation.outcome in (Outcome.PASSED, *NOT_ITS_FAULT):
                return Written(source=source, author=answer.author)
            why = outcome_in_words(evaluation.outcome, evaluation.reason)
            failed.append(source)
            _tell(number, evaluation)
            said = await asyncio.to_thread(reply_words, workspace, answer.reply_sha256)
            messages = (*messages, *await asyncio.to_thread(_mend, said, evaluation, source))
    try:
        source = await asyncio.to_thread(_translate, task)
    except UserError as error:
        raise UserError(f"{model} wrote no kernel that passes ({why}), and {error}") from error
    return Written(source=source, author=f"builtin ({model} failed: {why})")


def _first_messages(plan: RunPlan, workspace: Workspace, task: Task) -> tuple[Message, ...]:
    # Not measured_by: it changes when another host's first result arrives, and with it the prompt.
    context = task_context(task, workspace.device.identity)
    return render("initial_cuda", plan.models.context_of("initial_cuda"), **context)


def _mend(said: str, evaluation: Evaluation, source: str) -> tuple[Message, ...]:
    return (
        Message(role="assistant", content=said),
        *repair_messages(evaluation, source, numbered=False, keep=""),
    )


def _reader(failed: list[str]) -> Any:
    """Return what reads a reply: a file, and after a failure edits to it too."""

    def read(text: str) -> CodeReply:
        reply = read_code(text, failed[-1] if failed else None)
        if any(str(reply.source).split() == earlier.split() for earlier in failed):
            raise MalformedReply("this file was tried before and failed: mend its cause")
        return reply

    return read


def _tell(number: int, evaluation: Evaluation) -> None:
    report_progress(
        "initial_rejected",
        number=number,
        outcome=evaluation.outcome.value,
        reason=evaluation.reason,
    )

"""Initial CUDA: turn the PyTorch reference into a first, correct kernel.

Reads plan and summary; writes initial_source, initial_author and known. A person's kernel
(`--start`) takes its place, also as a KernelBench solution: that is restated as `launch`, by a
model where the built-in reader cannot. Where an earlier run found a kernel that holds here, the
search begins with that one, and the first is the direct translation, which it is told against. A
model is asked for the whole file, or, where the built-in writer lacks
kernels for some operators only, for these. What it writes is evaluated here, and mended where it
fails; where no attempt passes, the built-in writer's kernel stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from ...harness.errors import UserError
from ...harness.files import read_source
from ...harness.process.children import off_loop
from ...harness.records.evaluations import Evaluation
from ...harness.records.outcomes import Outcome, outcome_in_words
from ...harness.records.record import Record
from ...tools.first_kernel.kernels.missing import Sketch
from ...tools.models.asking import MalformedReply
from ...tools.models.code_reply import CodeReply, read_code
from ...tools.models.records import BUILTIN, Message
from ...tools.progress import report_progress
from ...tools.solutions.first_kernel import as_launch, not_restated
from ...tools.solutions.reading import NotRestated
from ..common.prompts.repair import reply_words
from ..common.stopping.interrupts import SearchEnds, awaited, budgeted
from ..common.workspaces import opened, workspace_of
from ..records.kernels import KnownStart
from ..records.plan import RunPlan
from ..records.task import TaskSummary
from .builtin import sketch, translations
from .known import Example, Remembered, remembered
from .prompt import first_messages, mending_messages
from .reading import read_functions

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


async def initial_cuda(state: Reads) -> dict[str, Any]:
    """Write or read the first kernel and store its text.

    Raises:
        UserError: `--start` cannot be read, or nothing here can write CUDA for this reference.
    """
    plan, summary = state["plan"], state["summary"]
    by_model = plan.models.model_of("initial_cuda") != BUILTIN
    written, solution, known = None, "", Remembered(KnownStart())
    if not plan.start:
        known = await remembered(plan, summary)
    if known.source:
        written = await _write_beside(plan, summary, known)
    elif plan.start:
        written, solution = await asyncio.to_thread(_restated, plan, summary, by_model)
    elif not by_model:
        sources = await _translations(plan, summary)
        written = Written(source=await _passing(plan, summary, sources), author=BUILTIN)
    if written is None:
        examples = known.examples
        try:
            written = await budgeted(
                plan, lambda: _write_by_model(plan, summary, solution, examples)
            )
        except SearchEnds as over:
            written = await _built_in(plan, summary, solution, over.reason)
    return await asyncio.to_thread(_store, plan, written, known)


async def _write_beside(plan: RunPlan, summary: TaskSummary, known: Remembered) -> Written:
    """Return the direct translation, which a known kernel is told against; where there is none,
    the known kernel itself."""
    try:
        sources = await _translations(plan, summary)
    except UserError:
        author = known.start.point.author if known.start.point else BUILTIN
        return Written(source=known.source, author=author)
    return Written(source=await _passing(plan, summary, sources), author=BUILTIN)


async def _translations(plan: RunPlan, summary: TaskSummary) -> tuple[str, ...]:
    """Return the built-in writer's kernels, the one that may hold at other sizes first.

    Raises:
        UserError: it writes none for this reference.
    """
    async with opened(plan) as workspace:
        task = await asyncio.to_thread(workspace.task, summary.artifact)
    return await off_loop(translations, task)


async def _passing(plan: RunPlan, summary: TaskSummary, sources: Sequence[str]) -> str:
    """Return the first of some kernels that passes, the last untried."""
    *others, last = sources
    async with opened(plan) as workspace:
        task = await asyncio.to_thread(workspace.task, summary.artifact)
        for source in others:
            evaluation = await awaited(
                plan, workspace,
                partial(workspace.evaluator.evaluate, task, source, measured_anew=True),
            )  # fmt: skip
            if evaluation.outcome is Outcome.PASSED or not evaluation.outcome.is_verdict:
                return source
            words = outcome_in_words(evaluation.outcome, evaluation.reason)
            report_progress("note", text=f"a first kernel that names all sizes fails: {words}")
    return last


def _restated(plan: RunPlan, summary: TaskSummary, by_model: bool) -> tuple[Written | None, str]:
    """Return a person's kernel; where a model must restate it as `launch`, its text instead."""
    with workspace_of(plan) as workspace:
        task = workspace.task(summary.artifact)
    assert plan.start
    start = Path(plan.start)
    text = read_source(start)
    try:
        return Written(source=as_launch(start, text, task), author="person"), ""
    except NotRestated as obstacle:
        if by_model:
            return None, text
        raise UserError(
            f"{not_restated(f'--start {start}', obstacle, plan.task)}, or let a model restate "
            "the solution: --model initial_cuda=openai:NAME"
        ) from None


def _store(plan: RunPlan, written: Written, known: Remembered) -> dict[str, Any]:
    with workspace_of(plan) as workspace:
        sha256 = workspace.artifacts.put_text(written.source)
        if known.source:
            workspace.artifacts.put_text(known.source)
    report_progress("initial", author=written.author, lines=written.source.count("\n") + 1)
    return {"initial_source": sha256, "initial_author": written.author, "known": known.start}


async def _write_by_model(
    plan: RunPlan, summary: TaskSummary, solution: str, examples: Sequence[Example]
) -> Written:
    """Return the first of a model's attempts that passes, else the built-in kernel.

    Nothing stands in where it was to restate a `solution`.

    Raises:
        UserError: neither can write one.
    """
    model = plan.models.model_of("initial_cuda")
    async with opened(plan) as workspace:
        task = await asyncio.to_thread(workspace.task, summary.artifact)
        rest = None if solution else await asyncio.to_thread(sketch, task)
        if rest is not None:
            report_progress("initial_asked", model=model, reason=rest.reason)
        asker = workspace.asker(plan.models)
        evaluator = workspace.evaluator
        failed: list[str] = []
        mended: list[tuple[Message, ...]] = []
        why = ""
        for number in range(MOST_ATTEMPTS):
            messages = await asyncio.to_thread(
                first_messages, plan, workspace, task, rest, solution, examples, mended
            )
            answer = await asker.text("initial_cuda", (number,), messages, _reader(failed, rest))
            if answer.value is None:
                why = answer.reason
                break
            source = str(answer.value.source)
            evaluation = await awaited(
                plan, workspace,
                partial(evaluator.evaluate, task, source, measured_anew=True),
            )  # fmt: skip
            if evaluation.outcome is Outcome.PASSED or not evaluation.outcome.is_verdict:
                return Written(source=source, author=answer.author)
            why = outcome_in_words(evaluation.outcome, evaluation.reason)
            failed.append(source)
            _tell(number, evaluation)
            said = await asyncio.to_thread(reply_words, workspace, answer.reply_sha256)
            mended.append(await asyncio.to_thread(mending_messages, said, evaluation, source))
    return await _built_in(plan, summary, solution, why)


async def _built_in(plan: RunPlan, summary: TaskSummary, solution: str, why: str) -> Written:
    """Return the built-in kernel in place of the one that a model did not write, and why.

    Raises:
        UserError: there is none, or a person's own was to be restated.
    """
    model = plan.models.model_of("initial_cuda")
    if solution:
        raise UserError(f"--start {plan.start}: {model} restated it in no way that passes: {why}")
    try:
        sources = await _translations(plan, summary)
    except UserError as error:
        raise UserError(f"{model} wrote no kernel that passes ({why}), and {error}") from error
    source = await _passing(plan, summary, sources)
    return Written(source=source, author=f"builtin ({model} failed: {why})")


def _reader(failed: list[str], rest: Sketch | None) -> Any:
    """Return what reads a reply: a file or what it lacks, and after a failure edits to it too."""

    def read(text: str) -> CodeReply:
        last = failed[-1] if failed else None
        reply = read_code(text, last) if rest is None else read_functions(text, rest, last)
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

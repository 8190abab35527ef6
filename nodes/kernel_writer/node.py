"""Lowering: write the chosen technique into code (the `write` node of the lowering graph).

Reads plan, summary, parent, choice and the attempts so far; writes the next attempt, or gives up.
The built-in writer rewrites the syntax tree; a failed attempt is followed by the technique's next
parameter values, never by the same source again. A model is shown the file, its profile and the
technique; a failed attempt goes on as a conversation, with what was found wrong as next message.
With tools (`writer`), it may have some called before it gives an attempt: then a round is written.
Of a choice with a basis, the numbers that a kernel names are changed, whoever wrote it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ...tools.models.asking import MalformedReply
from ...tools.models.code_reply import CodeReply, read_code
from ...tools.models.records import BUILTIN, Answer, ToolCalls
from ...tools.progress import at_place, report_progress
from ...tools.workspace import Workspace
from ..common.asking import stand_in
from ..common.randomness import explores
from ..common.stopping.interrupts import SearchEnds, budgeted
from ..common.workspaces import opened, workspace_of
from ..records.choices import TechniqueChoice
from ..records.kernels import KernelPoint
from ..records.lowering import Attempt, ToolRound
from ..records.observations import StateChoice
from ..records.plan import RunPlan
from ..records.task import TaskSummary
from .builtin import renumbered, rewrite
from .prompt import lowering_messages
from .tool_rounds import may_call, schemas, submitted, tried_kernels


class Reads(TypedDict, total=False):
    """What this agent reads; a checkpoint of an earlier version lacks the last three."""

    plan: RunPlan
    summary: TaskSummary
    parent: KernelPoint
    choice: TechniqueChoice
    attempts: dict[int, Attempt]
    place: tuple[int, int, int]
    state_choice: StateChoice
    knowledge_at: int
    rounds: tuple[ToolRound, ...]


async def kernel_writer(state: Reads) -> dict[str, Any]:
    """Write one more attempt, or ask for tools; an attempt without a source ends the lowering."""
    by_model = state["plan"].models.model_of("kernel_writer") != BUILTIN
    if not by_model or state["choice"].basis:
        attempt = await asyncio.to_thread(_write, state)
    else:
        try:
            written = await budgeted(state["plan"], lambda: _write_by_model(state))
        except SearchEnds as over:
            written = _unwritten(state, over.reason)
        if isinstance(written, ToolRound):
            return {"rounds": (*state.get("rounds", ()), written)}
        attempt = written
    report_progress(
        "attempt",
        **at_place(state["place"]),
        technique=state["choice"].technique,
        number=attempt.number,
        parameters=attempt.parameters,
        written=attempt.source_sha256 is not None,
        reason=attempt.reason,
    )
    return {"attempts": {**state["attempts"], attempt.number: attempt}}


def _unwritten(state: Reads, reason: str) -> Attempt:
    """Return the attempt that a model was not asked for any more."""
    author = state["plan"].models.model_of("kernel_writer")
    return Attempt(
        number=len(state["attempts"]), source_sha256=None, author=author, reason=reason
    )


def _write(state: Reads) -> Attempt:
    plan = state["plan"]
    with workspace_of(plan) as workspace:
        return _rewritten(workspace, state)


def _rewritten(workspace: Workspace, state: Reads) -> Attempt:
    """Return the built-in writer's next attempt."""
    plan, choice, attempts = state["plan"], state["choice"], state["attempts"]
    task = workspace.task(state["summary"].artifact)
    parent = workspace.artifacts.get_text(state["parent"].source_sha256)
    tried = [attempt.parameters for attempt in attempts.values()]
    if choice.basis:
        return _renumbered(workspace, state, tried)
    written = rewrite(
        parent,
        task,
        choice,
        tried,
        seed=plan.seed,
        place=state["place"],
        explore=explores(plan, state["place"][1]),
    )
    return Attempt(
        number=len(attempts),
        source_sha256=workspace.artifacts.put_text(written.source) if written.source else None,
        parameters=written.parameters,
        author=BUILTIN,
        reason=written.note,
    )


def _renumbered(
    workspace: Workspace, state: Reads, tried: Sequence[Mapping[str, Any]]
) -> Attempt:
    """Return a known kernel with another setting: it stays the work of who wrote it."""
    choice = state["choice"]
    written = renumbered(workspace.artifacts.get_text(choice.basis), choice, tried)
    author = next(
        (step.author for step in workspace.store.replay.steps()
         if step.child_sha256 == choice.basis), BUILTIN,
    )  # fmt: skip
    return Attempt(
        number=len(state["attempts"]),
        source_sha256=workspace.artifacts.put_text(written.source) if written.source else None,
        parameters=written.parameters,
        author=author,
        reason=written.note,
    )


async def _write_by_model(state: Reads) -> Attempt | ToolRound:
    """Return the model's next attempt, or the tools it asks for.

    The built-in writer's attempt where it goes first or must help.
    """
    plan, attempts = state["plan"], state["attempts"]
    first = not attempts
    last = None if first else attempts[len(attempts) - 1].outcome
    if last and not last.is_verdict:  # No other source would change it: a model is not paid to try.
        reason = "no other source would change that"
        return Attempt(number=len(attempts), source_sha256=None, author=BUILTIN, reason=reason)
    async with opened(plan) as workspace:
        if first and plan.models.rewrites_first:
            attempt = await asyncio.to_thread(_rewritten, workspace, state)
            if attempt.source_sha256 is not None:
                return attempt
        messages = await asyncio.to_thread(lowering_messages, workspace, state)
        sources = await asyncio.to_thread(_sources, workspace, state)

        def read(text: str) -> CodeReply:
            reply = read_code(text, sources[-1], may_decline=first)
            if any(_same(reply.source, earlier) for earlier in sources[1:]):
                raise MalformedReply("this file was tried before and failed: mend its cause")
            return reply

        asker = workspace.asker(plan.models)
        place = (*state["place"], len(attempts))
        if plan.writer == "replies":
            answer = await asker.text("kernel_writer", place, messages, read)
            return await asyncio.to_thread(_attempt, workspace, state, answer)
        kernels = await asyncio.to_thread(tried_kernels, workspace, state)
        called = await asker.calling(
            "kernel_writer",
            (*place, len(state.get("rounds", ()))),
            messages,
            schemas(),
            lambda text: read(submitted(text, kernels)),
            more=may_call(state),
        )
        if isinstance(called.value, ToolCalls):
            return ToolRound(attempt=len(attempts), reply_sha256=str(called.reply_sha256))
        return await asyncio.to_thread(_attempt, workspace, state, called)


def _attempt(workspace: Workspace, state: Reads, answer: Answer[Any]) -> Attempt:
    """Return what a model's answer came to, or what the built-in writer does in its place."""
    reply: CodeReply | None = answer.value
    number = len(state["attempts"])
    if reply is None:
        helped = _rewritten(workspace, state)
        if helped.source_sha256 is None:
            why = f"{answer.author} failed: {answer.reason}"
            return helped.model_copy(update={"author": answer.author, "reason": why})
        return helped.model_copy(update={"author": stand_in(answer)})
    declined = reply.source is None
    return Attempt(
        number=number,
        source_sha256=None if declined else workspace.artifacts.put_text(str(reply.source)),
        parameters=reply.parameters,
        author=answer.author,
        reason=f"the model declines: {reply.not_applicable}" if declined else "",
        prompt_sha256=answer.prompt_sha256,
        reply_sha256=answer.reply_sha256,
    )


def _sources(workspace: Workspace, state: Reads) -> list[str]:
    """Return the parent's source and that of each attempt, in order."""
    written = [attempt.source_sha256 for attempt in state["attempts"].values()]
    shas = [state["parent"].source_sha256, *(sha256 for sha256 in written if sha256)]
    return [workspace.artifacts.get_text(sha256) for sha256 in shas]


def _same(left: str | None, right: str) -> bool:
    return left is not None and left.split() == right.split()

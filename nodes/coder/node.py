"""Coder (CudaForge): writes the round's candidate.

Reads plan, summary, round, initial, current, latest and feedback; writes candidate. From nothing it
writes by the PyTorch reference; on the Judge's feedback it changes the kernel that was judged;
alone it changes the last one as it sees fit.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ...harness.records.outcomes import Outcome
from ...tools.models.code_reply import CodeReply, read_code
from ...tools.models.records import BUILTIN, Answer
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.asking import stand_in
from ..common.policies import RULES
from ..common.stopping.interrupts import budgeted
from ..common.workspaces import opened, workspace_of
from ..records.kernels import KernelPoint
from ..records.plan import RunPlan
from ..records.rounds import Candidate, Feedback
from ..records.task import TaskSummary
from .builtin import Written, draw, follow
from .prompt import coder_messages

FIRST = "first_kernel"
CORRECTION = "correction"
ALONE = "rewrite"
"""What was done, where nobody named a technique."""


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    round: int
    initial: KernelPoint
    current: KernelPoint
    latest: Candidate | None
    feedback: Feedback | None


async def coder(state: Reads) -> dict[str, Any]:
    """Write one candidate; one without a source is a round in which nothing was written."""
    if state["plan"].models.model_of("coder") == BUILTIN:
        candidate = await asyncio.to_thread(_write, state, BUILTIN)
    else:
        candidate = await budgeted(state["plan"], lambda: _write_by_model(state))
    report_progress(
        "attempt",
        iteration=0,
        rollout=0,
        step=state["round"],
        round=state["round"],
        technique=candidate.technique,
        number=0,
        parameters=candidate.parameters,
        written=candidate.source_sha256 is not None,
        reason=candidate.note,
    )
    return {"candidate": candidate}


def _technique(state: Reads, alone: str) -> str:
    """Return what the round does to the kernel before, in a word."""
    feedback = state["feedback"]
    if feedback is not None:
        return CORRECTION if feedback.mode == "correction" else feedback.method
    return alone


def _expected(state: Reads) -> float:
    return state["feedback"].expected_log_gain if state["feedback"] else 0.0


# Built in ------------------------------------------------------------------------------------


def _write(state: Reads, author: str) -> Candidate:
    with workspace_of(state["plan"]) as workspace:
        written = _rewritten(workspace, state)
        sha256 = workspace.artifacts.put_text(written.source) if written.source else None
    return Candidate(
        technique=_technique(state, alone=written.rewrite or FIRST),
        rewrite=written.rewrite,
        parameters=written.parameters,
        source_sha256=sha256,
        author=author,
        note=written.note,
        expected_log_gain=_expected(state),
        outcome=None if sha256 else Outcome.NOT_APPLICABLE,
    )


def _rewritten(workspace: Workspace, state: Reads) -> Written:
    """Return the built-in Coder's source: always of the last kernel that passed.

    What it writes first, where a Judge will advise it, is the kernel that all is compared with.
    """
    plan, feedback, latest = state["plan"], state["feedback"], state["latest"]
    task = workspace.task(state["summary"].artifact)
    good = workspace.artifacts.get_text(state["current"].source_sha256)
    if feedback is None:
        if RULES[plan.policy].modes:
            return Written(source=good, rewrite="", note="the first kernel of the run")
        return draw(good, task, plan.seed, state["round"])
    profile = workspace.evaluation(state["current"].evaluation_key).profile
    kernels = [share.kernel for share in profile.by_kernel] if profile else []
    if feedback.mode == "correction":
        assert latest is not None
        return follow(good, task, latest.rewrite, kernels, latest.parameters)
    return follow(good, task, feedback.method, kernels)


# By a model ----------------------------------------------------------------------------------


async def _write_by_model(state: Reads) -> Candidate:
    plan = state["plan"]
    async with opened(plan) as workspace:
        sha256 = _to_change(state)
        source = await asyncio.to_thread(workspace.artifacts.get_text, sha256) if sha256 else None
        messages = await asyncio.to_thread(coder_messages, workspace, state, source)
        advised = state["feedback"] is not None and state["feedback"].mode == "optimisation"

        def read(text: str) -> CodeReply:
            return read_code(text, source, may_decline=advised)

        asker = workspace.asker(plan.models)
        answer = await asker.text("coder", (state["round"],), messages, read)
        if answer.value is None and plan.models.on_model_failure == "builtin":
            return await asyncio.to_thread(_write, state, stand_in(answer))
        return await asyncio.to_thread(_candidate, workspace, state, answer)


def _to_change(state: Reads) -> str | None:
    """Return the artifact of the file to change: the judged one, else the last round's."""
    feedback, latest = state["feedback"], state["latest"]
    if feedback is not None:
        return feedback.source_sha256
    return latest.source_sha256 if latest else None


def _candidate(workspace: Workspace, state: Reads, answer: Answer[CodeReply]) -> Candidate:
    """Return what a model's answer came to; nobody stands in for one that cannot be read."""
    reply = answer.value
    source = reply.source if reply else None
    declined = reply is not None and source is None
    return Candidate(
        technique=_technique(state, alone=ALONE if state["latest"] else FIRST),
        parameters=reply.parameters if reply else {},
        source_sha256=workspace.artifacts.put_text(source) if source else None,
        author=answer.author,
        note=answer.reason if reply is None else reply.not_applicable,
        expected_log_gain=_expected(state),
        prompt_sha256=answer.prompt_sha256,
        outcome=None if source else Outcome.NOT_APPLICABLE if declined else Outcome.NO_ANSWER,
    )

"""Approve the winner: have a person agree before a confirmed kernel is announced.

Reads plan, summary, initial and confirmation; writes soft_reviews. A rejection is a veto: the run
goes back to confirm the next fastest kernel, and the reason is a lesson of the knowledge base.
"""

from __future__ import annotations

import asyncio
import difflib
from typing import Any, NotRequired, TypedDict

from ....tools.workspace import Workspace
from ...common.history.lesson import write_veto
from ...common.history.steps import path_to
from ...common.stopping.approval import PERSON, decided, is_asked
from ...common.stopping.questions import Decision, Expected, Misunderstood, WinnerQuestion, cost_of
from ...common.workspaces import opened
from ...records.kernels import KernelPoint
from ...records.plan import RunPlan
from ...records.result import Confirmation
from ...records.reviews import SoftReview
from ...records.task import TaskSummary

LONGEST_DIFF = 6000
"""Characters: a question stays small, the whole is in the artifacts."""


class Reads(TypedDict):
    """What this node reads."""

    plan: RunPlan
    summary: TaskSummary
    initial: KernelPoint
    confirmation: Confirmation
    soft_reviews: NotRequired[dict[str, SoftReview]]
    """Of other kernels: by their vetoes one time here is told from the next."""


async def approve_winner(state: Reads) -> dict[str, Any]:
    """Stop until a person has decided about the kernel to be announced, where that is asked for.

    The initial kernel needs no approval.
    """
    plan, point = state["plan"], state["confirmation"].point
    is_initial = point.source_sha256 == state["initial"].source_sha256
    approved = {"confirmation": state["confirmation"]}
    if is_initial or not await is_asked(plan, "winner"):
        return approved
    async with opened(plan) as workspace:
        question = await asyncio.to_thread(_question, workspace, state)
    rejected = await decided(plan, question, settle)
    if not rejected:
        return approved
    why = f"rejected by a person: {rejected}"
    await asyncio.to_thread(write_veto, plan, state["summary"], point.source_sha256, why, PERSON)
    veto = SoftReview(vetoed=True, reasons=(rejected,), author=PERSON)
    return {"soft_reviews": {point.evaluation_key: veto}}


def settle(decision: Decision) -> str:
    """Return why a winner is rejected; empty where it is accepted.

    Raises:
        Misunderstood: it was edited.
    """
    if decision.verdict == "edit":
        raise Misunderstood("a winner cannot be edited: accept it, or reject it with a reason")
    return decision.reason


def _question(workspace: Workspace, state: Reads) -> WinnerQuestion:
    confirmation, initial = state["confirmation"], state["initial"]
    point = confirmation.point
    path = path_to(point.source_sha256, workspace.store.replay.steps())
    low, high = confirmation.gain_interval
    before, after = (
        workspace.artifacts.get_text(each.source_sha256) for each in (initial, point)
    )
    return WinnerQuestion(
        run=state["plan"].run,
        asks=f"Announce this kernel, {confirmation.gain:.2f}x the initial one of "
        f"{state['summary'].name}?",
        cost=cost_of(workspace),
        answers=("accept", "reject:REASON"),
        techniques=tuple(step.technique for step in path),
        microseconds=confirmation.microseconds,
        initial_microseconds=initial.microseconds,
        provenance=point.provenance,
        expected=Expected(gain=confirmation.gain, low=low, high=high),
        remarks=confirmation.reason,
        diff=changed(before, after),
        source=point.source_sha256,
    )


def changed(before: str, after: str) -> str:
    """Return what makes one text of another, in unified form, cut at a line where it is long."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "initial.cu", "winner.cu", lineterm=""
    )
    text = "\n".join(lines)
    if len(text) <= LONGEST_DIFF:
        return text
    kept = text[:LONGEST_DIFF].rpartition("\n")[0]
    return f"{kept}\n... {text.count(chr(10)) - kept.count(chr(10))} more lines"

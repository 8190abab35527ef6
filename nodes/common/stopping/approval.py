"""Have a person decide: whether that is asked for, the question until it is understood, the lesson.

What is asked for stands in the plan, and over it in the run's approve.json: `resume` may change it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_config
from langgraph.types import interrupt
from pydantic import TypeAdapter, ValidationError

from ....harness.errors import UserError, in_shell, shown, unwritten
from ....harness.files import read_json, write_atomically
from ....tools.progress import report_progress
from ....tools.workspace import open_runs
from ...records.plan import Approval, RunPlan
from .questions import Decision, Misunderstood, Question, read_decision

Value = TypeVar("Value")

APPROVE_FILE = "approve.json"
PERSON = "person"
"""The author of what a person decided."""
_APPROVALS = TypeAdapter(tuple[Approval, ...])
_NO_TASK = "00000000-0000-0000-0000-000000000000"
"""Under which LangGraph stores a plain Command(resume=...), which names no task."""


def parse_approvals(words: str) -> tuple[Approval, ...]:
    """Return what `plan,technique,winner` asks for; `none` asks for nothing.

    Raises:
        UserError: one of the words is another.
    """
    named = [word.strip() for word in words.split(",") if word.strip()]
    try:
        return _APPROVALS.validate_python([] if named == ["none"] else list(dict.fromkeys(named)))
    except ValidationError as error:
        raise UserError(
            f"--approve {shown(words)}: give plan, technique and winner, with commas, or none"
        ) from error


def change_approvals(directory: Path, approvals: Sequence[Approval]) -> None:
    """Set what a run asks a person from now on.

    Raises:
        UserError: the disk is full or the directory is not writable.
    """
    path = directory / APPROVE_FILE
    try:
        write_atomically(path, (json.dumps(list(approvals)) + "\n").encode())
    except OSError as error:
        raise UserError(unwritten(path, error)) from error


def approvals_of(plan: RunPlan) -> tuple[Approval, ...]:
    """Return what a run asks a person.

    Raises:
        UserError: approve.json is damaged.
    """
    path = Path(plan.run) / APPROVE_FILE
    again = f"kernelblaster resume {in_shell(plan.run)} --approve none"
    remedy = f"write it anew, for example: {again}"
    try:
        return _APPROVALS.validate_python(read_json(path, "what is to be approved", remedy))
    except FileNotFoundError:
        return plan.approve
    except (OSError, ValidationError) as error:
        raise UserError(f"{path} is damaged; {remedy}") from error


async def is_asked(plan: RunPlan, what: Approval) -> bool:
    """Say whether a person is asked about the plan, each technique, or the winner."""
    return what in await asyncio.to_thread(approvals_of, plan)


async def decided(
    plan: RunPlan, question: Question, understand: Callable[[Decision], Value]
) -> Value:
    """Stop the run until a person has answered; return what `understand` makes of the decision.

    `understand` runs in a thread and raises Misunderstood, or UserError, where it has no use for
    the decision: then the question is asked again with that sentence.

    Raises:
        GraphInterrupt: there is no answer yet.
    """
    # Whoever resumes may be another process: it must find the directory free.
    await asyncio.to_thread(open_runs().finished, Path(plan.run))
    while True:
        answer = interrupt(question.model_dump(mode="json"))
        await _spend_answer()
        try:
            decision = read_decision(answer)
            value = await asyncio.to_thread(understand, decision)
        except (Misunderstood, UserError) as error:
            question = question.model_copy(update={"hint": str(error)})
            continue
        report_progress("decision", about=question.kind, **decision.model_dump(mode="json"))
        return value


async def _spend_answer() -> None:
    """Have the answer just taken answer no other question.

    A plain Command(resume=...) stays with the outermost checkpoint until all parallel rollouts have
    ended, and LangGraph hands it to the next question when the run is gone on with without one: an
    "accept" would accept what nobody saw. Whoever answers by interrupt id leaves nothing behind.
    """
    settings = get_config()["configurable"]
    outermost = (settings.get("checkpoint_map") or {}).get("")
    checkpointer: BaseCheckpointSaver[Any] | None = settings.get("__pregel_checkpointer")
    if outermost is None or not isinstance(checkpointer, BaseCheckpointSaver):
        return
    place: RunnableConfig = {
        "configurable": {
            "thread_id": settings["thread_id"],
            "checkpoint_ns": "",
            "checkpoint_id": outermost,
        }
    }
    await checkpointer.aput_writes(place, [("__resume__", None)], _NO_TASK)

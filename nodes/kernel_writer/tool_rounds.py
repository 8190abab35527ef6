"""Tools for a writer that is a model (the `use_tools` node): what it may call, and the answers.

Reads plan, summary, place and the rounds so far; writes the answers of the newest round. The
model's calls are in the ledger and what they measured is in run.sqlite: after a kill neither is
paid for again. The conversation is made anew of both.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypedDict

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from ...harness.errors import shown
from ...tools.for_agents.desk import ID_DIGITS, Desk
from ...tools.for_agents.langchain import OpenDesk, desk_tools
from ...tools.models.code_reply import fenced
from ...tools.models.records import Message, ToolCall
from ...tools.models.reply_forms import MalformedReply, RawReply, arguments_of
from ...tools.progress import at_place, report_progress
from ...tools.workspace import Workspace
from ..common.stopping.caps import search_over
from ..common.stopping.interrupts import awaited
from ..common.workspaces import opened, workspace_of
from ..records.kernels import KernelPoint
from ..records.lowering import Attempt, ToolRound, evaluated_sources
from ..records.plan import RunPlan
from ..records.task import TaskSummary

MOST_ROUNDS = 8
"""Replies with tool calls for one technique, all attempts at it together."""
NO_MORE = "No more tools can be called: answer now, with the file or with SUBMIT: and its id."
MOST_CALLS = 6
"""Of one reply: those beyond are not made."""
LONGEST_LINE = 200
"""Characters of an answer in a progress event."""

_SUBMITTED = re.compile(r"^[ \t*`]*SUBMIT:?[ \t*`]*(kernel-\w+)[ \t*`]*$", re.MULTILINE)
_KERNEL = re.compile(rf"kernel-[0-9a-f]{{{ID_DIGITS}}}")
_IN_THE_PROMPT = "show_task"
"""What it tells stands in the prompt already."""
_EVALUATING = frozenset(("compile_kernel", "run_kernel", "profile_kernel"))
"""Tools that may have a draft evaluated, which is one of the rollout's share of evaluations."""
_NO_ROOM = "not called: what is left of this rollout's share of evaluations is for your answer"


class Reads(TypedDict, total=False):
    """What this node reads."""

    plan: RunPlan
    summary: TaskSummary
    place: tuple[int, int, int]
    attempts: dict[int, Attempt]
    knowledge_at: int
    rounds: tuple[ToolRound, ...]
    parent: KernelPoint
    evaluations_left: int | None


async def use_tools(state: Reads) -> dict[str, Any]:
    """Call the tools that the newest round asks for, one after the other.

    A draft that they have evaluated is one of the evaluations that the rollout has a share of.
    """
    plan, (*before, newest) = state["plan"], state["rounds"]
    if over := await search_over(plan):
        return {"rounds": (*before, await asyncio.to_thread(_refused, plan, newest, over))}
    answers: list[str] = []
    async with opened(plan) as workspace:
        desk = await asyncio.to_thread(desk_of, workspace, state)

        async def this() -> Desk:
            return desk

        tools = {tool.name: tool for tool in _tools(this)}
        reply = await asyncio.to_thread(_reply, workspace, newest)
        evaluated: tuple[str, ...] = ()
        for call in reply.calls[:MOST_CALLS]:
            if call.name in _EVALUATING and not _has_room(state, evaluated):
                answer = _NO_ROOM
            else:
                answer = await awaited(plan, workspace, partial(_answer, tools, call))
            answers.append(answer)
            evaluated = await asyncio.to_thread(_evaluated, workspace, state, answers)
            _tell(state, call, answer)
        left = len(reply.calls) - len(answers)
        answers += [f"not called: at most {MOST_CALLS} calls a reply"] * left
        stored = await asyncio.to_thread(workspace.artifacts.put_text, json.dumps(answers))
    done = {"answers_sha256": stored, "evaluated": evaluated}
    return {"rounds": (*before, newest.model_copy(update=done))}


def _has_room(state: Reads, evaluated: Sequence[str]) -> bool:
    """Say whether a draft may be evaluated: one evaluation is left for the answer."""
    left = state.get("evaluations_left")
    spent = evaluated_sources(state["attempts"].values(), state["rounds"]) | set(evaluated)
    return left is None or len(spent) < left - 1


def _evaluated(workspace: Workspace, state: Reads, answers: Sequence[str]) -> tuple[str, ...]:
    """Return the artifacts of the kernels in some answers that were evaluated.

    Without the file that is to be changed.
    """
    task = workspace.task(state["summary"].artifact)
    named = dict.fromkeys(name for text in answers for name in _KERNEL.findall(text))
    found = (workspace.artifacts.names(name.removeprefix("kernel-")) for name in named)
    sources = [names[0] for names in found if names]
    return tuple(
        sha256
        for sha256 in sources
        if sha256 != state["parent"].source_sha256
        and workspace.store.get(
            workspace.evaluator.key(task, workspace.artifacts.get_text(sha256))
        )
    )


def _refused(plan: RunPlan, newest: ToolRound, over: str) -> ToolRound:
    """Return the round whose calls are not made, because the search is over."""
    with workspace_of(plan) as workspace:
        answers = [f"not called: {over}" for _ in _reply(workspace, newest).calls]
        stored = workspace.artifacts.put_text(json.dumps(answers))
    return newest.model_copy(update={"answers_sha256": stored})


def desk_of(workspace: Workspace, state: Mapping[str, Any]) -> Desk:
    """Return what the tools act on in a run: its gates and stores, and the iteration's snapshot."""
    return Desk(
        workspace.task(state["summary"].artifact),
        workspace.evaluator,
        workspace.artifacts,
        lambda: workspace.knowledge,
        workspace.measured_by,
        state.get("knowledge_at"),
    )


def schemas() -> list[dict[str, Any]]:
    """Return the tools as a model is told of them."""

    async def nowhere() -> Desk:
        raise AssertionError("a schema is asked for, nothing is called")

    return [convert_to_openai_tool(tool) for tool in _tools(nowhere)]


def may_call(state: Mapping[str, Any]) -> bool:
    """Say whether tools may be called once more for this technique."""
    return len(state.get("rounds", ())) < MOST_ROUNDS


def tried_kernels(workspace: Workspace, state: Mapping[str, Any]) -> dict[str, str]:
    """Return the sources that the tools were given so far, by their ids."""
    answers = [
        workspace.artifacts.get_text(each.answers_sha256)
        for each in state.get("rounds", ())
        if each.answers_sha256
    ]
    named = dict.fromkeys(name for text in answers for name in _KERNEL.findall(text))
    stored = {name: workspace.artifacts.names(name.removeprefix("kernel-")) for name in named}
    return {name: workspace.artifacts.get_text(found[0]) for name, found in stored.items() if found}


def submitted(text: str, kernels: Mapping[str, str]) -> str:
    """Return a reply with the file in the place of the id that it submits.

    Raises:
        MalformedReply: the tools were given no kernel of this id.
    """
    found = _SUBMITTED.search(text)
    if found is None:
        return text
    if found[1] not in kernels:
        raise MalformedReply(
            f"there is no {found[1]}: submit one that you gave to a tool "
            f"({', '.join(kernels) or 'none so far'}), or give the complete file"
        )
    return text.replace(found[0], fenced(kernels[found[1]]), 1)


def round_messages(
    workspace: Workspace, state: Mapping[str, Any], attempt: int
) -> list[tuple[Message, ...]]:
    """Return the calls before an attempt and their answers, as the conversation has them: a reply
    with the answers to its calls each."""
    rounds: list[tuple[Message, ...]] = []
    for each in (each for each in state.get("rounds", ()) if each.attempt == attempt):
        reply = _reply(workspace, each)
        answers = json.loads(workspace.artifacts.get_text(str(each.answers_sha256)))
        told = (
            Message(role="tool", content=answer, answers=call.id)
            for call, answer in zip(reply.calls, answers, strict=True)
        )
        rounds.append((Message(role="assistant", content=reply.text, calls=reply.calls), *told))
    return rounds


def without_more(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return a conversation at whose end is said that no tool may be called any more."""
    *before, last = messages
    if last.role != "user":  # Two messages of a user in a row are not taken everywhere.
        return (*messages, Message(role="user", content=NO_MORE))
    return (*before, last.model_copy(update={"content": f"{last.content}\n\n{NO_MORE}"}))


async def _answer(tools: Mapping[str, BaseTool], call: ToolCall) -> str:
    """Return what a tool answers, or why it cannot be called."""
    tool, arguments = tools.get(call.name), arguments_of(call)
    if tool is None:
        return f"there is no tool {shown(call.name)}; there are {', '.join(tools)}"
    if arguments is None:
        return f"{call.name}: the arguments are no JSON object; call it again with one"
    answer = await tool.ainvoke(
        {"type": "tool_call", "name": call.name, "args": arguments, "id": call.id}
    )
    return str(answer.content)


def _tools(open_desk: OpenDesk) -> list[BaseTool]:
    return [tool for tool in desk_tools(open_desk) if tool.name != _IN_THE_PROMPT]


def _reply(workspace: Workspace, tool_round: ToolRound) -> RawReply:
    return RawReply.model_validate_json(workspace.artifacts.get_text(tool_round.reply_sha256))


def _tell(state: Reads, call: ToolCall, answer: str) -> None:
    report_progress(
        "tool",
        **at_place(state["place"]),
        tool=call.name,
        answer=answer.split("\n", 1)[0][:LONGEST_LINE],
    )

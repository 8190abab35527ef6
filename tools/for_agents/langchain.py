"""The tools as LangChain has them: what goes wrong is an answer of one sentence."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from ...harness.devices.deferred import ResultAwaited
from ...harness.errors import UserError
from ..models.reply_forms import MalformedReply
from ..waiting import wait_for
from . import kernels, knowledge
from .arguments import (
    Application,
    Arguments,
    Named,
    NoArguments,
    OneSource,
    Reference,
    Search,
    complaint,
    short,
)
from .desk import Desk

OpenDesk = Callable[[], Awaitable[Desk]]
"""Gives the desk that tools act on; asked at every call."""


class Action(NamedTuple):
    """What a tool does, by the name of its function."""

    act: Callable[..., Awaitable[str]]
    arguments: type[Arguments]


ACTIONS = (
    Action(kernels.show_task, NoArguments),
    Action(kernels.compile_kernel, OneSource),
    Action(kernels.run_kernel, OneSource),
    Action(kernels.profile_kernel, OneSource),
    Action(knowledge.search_knowledge, Search),
    Action(knowledge.describe_technique, Named),
    Action(kernels.apply_technique, Application),
    Action(kernels.read_more, Reference),
)
"""Every tool that acts on a desk, in the order of a job."""


def desk_tools(open_desk: OpenDesk) -> list[BaseTool]:
    """Return the tools that act on a desk.

    They answer in words of at most LONGEST_ANSWER characters. A candidate's failure is an answer,
    so is a bad argument or what cannot be served: one sentence that says what to do. They can be
    awaited (`ainvoke`) and waited for (`invoke`), beside a running loop too.
    """
    return [_tool(action, open_desk) for action in ACTIONS]


def _tool(action: Action, open_desk: OpenDesk) -> BaseTool:
    name = action.act.__name__

    async def answer(**arguments: Any) -> str:
        try:
            desk = await open_desk()
            said = await action.act(desk, **arguments)
            return await asyncio.to_thread(desk.bounded, said)
        except ResultAwaited:
            raise  # No fault: a run waits for it, and asks again.
        except (UserError, MalformedReply) as error:
            raise ToolException(short(str(error))) from error
        except (OSError, sqlite3.DatabaseError) as error:
            raise ToolException(short(f"{name} cannot be served: {error}")) from error

    return StructuredTool(
        name=name,
        description=" ".join((action.act.__doc__ or "").split()),
        args_schema=action.arguments,
        func=lambda **arguments: wait_for(answer(**arguments)),
        coroutine=answer,
        handle_tool_error=True,
        handle_validation_error=complaint(name, action.arguments),
    )

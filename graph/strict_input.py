"""A state graph that refuses input it does not know, by name.

LangGraph drops what no channel is named after: a mistyped setting would be a run without it.
"""

from __future__ import annotations

import difflib
from typing import Any, Generic

from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.constants import START
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.typing import ContextT, InputT, OutputT, StateT

from ..harness.errors import UserError
from ..nodes.records import RunContext
from .channels import Recorded


class StrictInput(
    StateGraph[StateT, ContextT, InputT, OutputT], Generic[StateT, ContextT, InputT, OutputT]
):
    """Refuses unknown keys of what it is called with.

    As a node of another graph it is handed all of that graph's state: there it takes its own keys.
    """

    def compile(
        self, *arguments: Any, **named: Any
    ) -> CompiledStateGraph[StateT, ContextT, InputT, OutputT]:
        """Compile as LangGraph does; the check is the first thing that runs."""
        compiled = super().compile(*arguments, **named)
        channels = self.schemas[self.input_schema]
        known = tuple(channels)
        optional = [name for name in known if not isinstance(channels[name], Recorded)]

        def check(asked: Any, config: RunnableConfig) -> Any:
            place = config.get("configurable", {}).get("checkpoint_ns", "")
            if not isinstance(asked, dict):
                return asked
            if "|" not in place:
                require_known(asked, known)
            # What an earlier call on this thread was asked, and this one is not, is not asked.
            return dict.fromkeys(optional) | asked

        compiled.nodes[START] = compiled.nodes[START].copy({"bound": RunnableLambda(check)})
        return compiled


def require_known(asked: dict[str, Any], known: tuple[str, ...]) -> None:
    """Check the names of what a graph is called with.

    Raises:
        UserError: one is unknown; the line says what was meant, maybe.
    """
    settings = tuple(RunContext.model_fields)
    for name in asked:
        if name in known:
            continue
        if name in settings:
            raise UserError(f"{name} is a setting: give it in the context, not in the input")
        near = difflib.get_close_matches(name, (*known, *settings), 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"unknown input {name}{meant} (it has: {', '.join(known)})")

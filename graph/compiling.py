"""How every graph is compiled: known input, loops bounded by state, streams that show the state."""

from __future__ import annotations

import difflib
import functools
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence
from typing import Annotated, Any, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import GraphOutput, StateSnapshot, StateUpdate
from langgraph.typing import ContextT, InputT, OutputT, StateT
from pydantic import Field

from ..harness.errors import BadValue, UserError
from ..harness.records.record import sentences_below
from ..nodes.records.plan import RunContext
from .channels import Recorded

INTERRUPT = "__interrupt__"
CHECKPOINTER = "__pregel_checkpointer"
"""Given to a graph inside of another, whose checkpoints lie with those of the other."""
RECURSION_LIMIT = 10_000
"""Steps of a graph, whatever a caller's config says: state bounds its loops long before."""


class AgentGraph(StateGraph[StateT, ContextT, InputT, OutputT]):
    """A graph whose compiled form is a `CompiledAgentGraph`."""

    def compile(self, *args: Any, **options: Any) -> CompiledStateGraph[Any, Any, Any, Any]:
        """Compile it; arguments as LangGraph's."""
        compiled = super().compile(*args, **options)
        compiled.__class__ = CompiledAgentGraph  # LangGraph takes no class to make.
        # A server, and a parent that streams its sub-graphs, show these keys and no others.
        compiled.output_channels = compiled.stream_channels_asis
        for schema in (*self.schemas, self.state_schema):
            for name, words in described(cast(Hashable, schema)).items():
                channel: Any = compiled.channels[name]  # Of these Studio makes a state's schema.
                channel.typ = Annotated[channel.typ, Field(description=words)]
        start = _Start(self._asked)
        compiled.nodes[START] = compiled.nodes[START].copy({"bound": start})
        return compiled

    def _asked(self, asked: Any, config: RunnableConfig | None) -> Any:
        """Return what a thread is asked, whole: the first thing that runs.

        LangGraph drops what no channel is named after, and keeps what an earlier call was asked.
        As a node of another graph this one is handed all of that graph's state, and takes its own.
        """
        if not isinstance(asked, dict):
            return asked
        channels = self.schemas[self.input_schema]
        if "|" not in (config or {}).get("configurable", {}).get("checkpoint_ns", ""):
            require_known(asked, tuple(channels))
        plain = [name for name in channels if not isinstance(channels[name], Recorded)]
        return dict.fromkeys(plain) | asked


class _Start(Runnable[Any, Any]):
    """Says what a graph is asked: a `RunnableLambda` would have a thread say it."""

    def __init__(self, asked: Callable[[Any, RunnableConfig | None], Any]) -> None:
        self._asked = asked

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        return self._asked(input, config)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        return self._asked(input, config)


IN_CONTEXT = "give it in the context, not in the input"


def require_known(
    asked: Mapping[str, Any],
    known: Sequence[str],
    what: str = "input",
    settings_go: str = IN_CONTEXT,
) -> None:
    """Check the names of what a graph is called with, or its state is edited by.

    Args:
        asked: by name.
        known: names that there are.
        what: is asked.
        settings_go: where a setting belongs.

    Raises:
        BadValue: one is unknown; the line says what was meant, maybe.
    """
    settings = tuple(RunContext.model_fields)
    for name in asked:
        if name in known:
            continue
        if name in settings:
            raise BadValue(f"{name} is a setting: {settings_go}")
        close = difflib.get_close_matches(name, (*known, *settings), 1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise BadValue(f"unknown {what} {name}{meant} (it has: {', '.join(known)})")


@functools.cache
def described(schema: Any) -> dict[str, str]:
    """Return the sentences below the keys of a state that asks for them to be read."""
    found: dict[str, str] = {}
    if not getattr(schema, "__pydantic_config__", {}).get("use_attribute_docstrings"):
        return found
    for base in (*schema.__dict__.get("__orig_bases__", ()), schema):
        below = sentences_below(base)
        found |= {key: words.replace("\n", " ") for key, words in below.items()}
    return found


class CompiledAgentGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """Streams its whole state, and answers a caller with its output schema alone.

    A parent's recursion limit is for the parent's own loops: it does not reach in here.
    """

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **options: Any
    ) -> Any:
        """Run it to its end, or to an interrupt, and return what its output schema names."""
        answer = await super().ainvoke(input, config, **options)
        return answer if options.get("output_keys") is not None else self._answer(answer)

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **options: Any
    ) -> AsyncIterator[Any]:
        """Run it and give what the stream modes ask for.

        A server takes the last of `values` for the answer: at the end it is given that.
        """
        limited = cast(RunnableConfig, {**(config or {}), "recursion_limit": RECURSION_LIMIT})
        modes = options.get("stream_mode")
        asks = options.get("output_keys") is self.output_channels and isinstance(modes, list)
        values = None
        async for part in super().astream(input, limited, **options):
            yield part
            if asks and isinstance(part, tuple) and not (len(part) == 3 and part[0]):
                if isinstance(part[-1], dict) and INTERRUPT in part[-1]:
                    asks = False
                elif part[-2] == "values":
                    values = part
        if asks and values is not None:
            yield (*values[:-1], self._answer(values[-1]))

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        """Edit a thread's state, where nothing else is said as the node that ended last.

        LangGraph never takes one that was sent off (`Send`) for the last, and drops what no key is
        named after.

        Raises:
            BadValue: a key is unknown, or cannot be edited any more.
        """
        place = config.get("configurable", {})
        if place.get("checkpoint_ns") and CHECKPOINTER not in place:
            return await super().abulk_update_state(config, supersteps)  # Of a graph in here.
        state = await self.aget_state(config)
        edits = [
            [self._edit(state, StateUpdate(*update)) for update in updates]
            for updates in supersteps
        ]
        return await super().abulk_update_state(config, edits)

    def _edit(self, state: StateSnapshot, update: StateUpdate) -> StateUpdate:
        values, edges = update.values, self.builder.edges
        if values is None or update.as_node not in (None, *self.builder.nodes):
            return update
        require_known(values, self.stream_channels_list, "key", 'edit it as {"plan": {...}}')
        first = {end for start, end in edges if start == START}
        for name in self.builder.schemas[self.builder.input_schema]:
            fixed = not isinstance(self.channels[name], Recorded) and not first & {*state.next}
            if fixed and name in values and values[name] != state.values.get(name):
                raise BadValue(f"{name} is read when a run begins; start another run")
        before = [start for start, end in edges if end in state.next and start != START]
        chosen = {end for each in self.builder.branches.values() for branch in each.values()
                  for end in (branch.ends or {}).values()}  # fmt: skip
        if update.as_node is None and len(before) == 1 and not chosen & {*state.next}:
            return update._replace(as_node=before[0])
        return update

    def invoke(self, input: Any, config: Any = None, **options: Any) -> Any:
        """Raise UserError: these graphs run in an event loop."""
        raise UserError(
            f"the graph {self.name} is async: await graph.ainvoke(...), or call "
            "kernelblaster.optimize(...), which waits for it"
        )

    def stream(self, input: Any, config: Any = None, **options: Any) -> Iterator[Any]:
        """Raise UserError, as `invoke` does."""
        raise UserError(
            f"the graph {self.name} is async: use `async for part in graph.astream(...)`, or "
            "kernelblaster.optimize(..., watch=...)"
        )

    def _answer(self, answer: Any) -> Any:
        shown = self.builder.schemas[self.builder.output_schema]
        inner = set(self.stream_channels_list) - set(shown)
        if isinstance(answer, GraphOutput):
            return GraphOutput(value=self._answer(answer.value), interrupts=answer.interrupts)
        if isinstance(answer, dict):
            return {name: value for name, value in answer.items() if name not in inner}
        return answer

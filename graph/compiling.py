"""How every graph is compiled: known input, loops bounded by state, streams that show the state."""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import textwrap
from collections.abc import AsyncIterator, Hashable, Iterator, Mapping, Sequence
from typing import Annotated, Any, cast

from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import GraphOutput
from langgraph.typing import ContextT, InputT, OutputT, StateT
from pydantic import Field

from ..harness.errors import UserError
from ..nodes.records import RunContext
from .channels import Recorded

INTERRUPT = "__interrupt__"
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
        start = RunnableLambda(self._asked)
        compiled.nodes[START] = compiled.nodes[START].copy({"bound": start})
        return compiled

    def _asked(self, asked: Any, config: RunnableConfig) -> Any:
        """Return what a thread is asked, whole: the first thing that runs.

        LangGraph drops what no channel is named after, and keeps what an earlier call was asked.
        As a node of another graph this one is handed all of that graph's state, and takes its own.
        """
        if not isinstance(asked, dict):
            return asked
        channels = self.schemas[self.input_schema]
        if "|" not in config.get("configurable", {}).get("checkpoint_ns", ""):
            require_known(asked, tuple(channels))
        plain = [name for name in channels if not isinstance(channels[name], Recorded)]
        return dict.fromkeys(plain) | asked


def require_known(asked: Mapping[str, Any], known: Sequence[str]) -> None:
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
        close = difflib.get_close_matches(name, (*known, *settings), 1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise UserError(f"unknown input {name}{meant} (it has: {', '.join(known)})")


@functools.cache
def described(schema: Any) -> dict[str, str]:
    """Return the sentences below the keys of a state that asks for them to be read."""
    found: dict[str, str] = {}
    if not getattr(schema, "__pydantic_config__", {}).get("use_attribute_docstrings"):
        return found
    for base in (*schema.__dict__.get("__orig_bases__", ()), schema):
        try:
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError):  # A base that is no class; a program without its sources.
            continue
        lines = body.body if isinstance(body, ast.ClassDef) else []
        for key, below in zip(lines, lines[1:], strict=False):
            match key, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(words))),
                ):
                    found[name] = inspect.cleandoc(words).replace("\n", " ")
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

"""Child process of the kill test of parents: a parent graph with a sqlite saver, begun or gone on.

usage: parent_child.py FOLDER KIND    prints the result's run directory
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, TypedDict

import graph_support
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from run_child import replace

import kernelblaster
from kernelblaster.graph.optimize import graph as optimize


class State(TypedDict, total=False):
    task: str
    kernel_task: str
    result: Any
    kernel_result: Any


CONTEXT = kernelblaster.RunContext(iterations=2, rollouts=2, steps=3)


async def wrapper(state: State) -> dict[str, Any]:
    answer = await optimize.ainvoke({"task": state["kernel_task"]}, context=CONTEXT)
    return {"kernel_result": answer["result"]}


async def main(folder: Path, kind: str) -> None:
    graph_support.install(replace)
    node = {"as_node": kernelblaster.as_node(), "compiled": optimize, "wrapper": wrapper}[kind]
    built = StateGraph(State, context_schema=kernelblaster.RunContext)
    built.add_node("kernel", node)
    built.add_edge(START, "kernel")
    types = kernelblaster.checkpoint_types()
    async with AsyncSqliteSaver.from_conn_string(str(folder / "parent.sqlite")) as saver:
        saver.serde = JsonPlusSerializer(allowed_msgpack_modules=types)
        parent = built.compile(checkpointer=saver)
        config: RunnableConfig = {"configurable": {"thread_id": "one"}, "recursion_limit": 5}
        begun = (await parent.aget_state(config)).next
        request = None if begun else {"task": "text.py", "kernel_task": "text.py"}
        answer = await parent.ainvoke(request, config, context=CONTEXT, durability="sync")
    print((answer.get("result") or answer.get("kernel_result")).run)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))

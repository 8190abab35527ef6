"""A graph of your own that has a kernel optimised: its node, its checkpoints, what it streams.

    python examples/langgraph/parent_graph.py examples/softmax.py [as_node|compiled|own]
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph

import kernelblaster
from kernelblaster import RunContext, RunResult


class State(TypedDict, total=False):
    """Your own keys, and those of the node under its prefix."""

    task: str
    result: RunResult
    kernel_task: str
    kernel_result: RunResult
    answer: str


async def choose(state: State) -> State:
    """Say which reference is to be made fast: yours to decide."""
    return {"kernel_task": state["task"]}


async def tell(state: State) -> State:
    """Use the record that came back."""
    found = state.get("kernel_result") or state["result"]
    return {"answer": f"{found.gain:.2f}x faster by {', '.join(found.techniques) or 'nothing'}"}


async def own(state: State) -> State:
    """Call the graph as you like: here what it is asked has other names in your state."""
    answer = await GRAPH.ainvoke({"task": state["kernel_task"]}, context=CONTEXT)
    return {"kernel_result": answer["result"]}


CONTEXT = RunContext(iterations=1, steps=2)
GRAPH = kernelblaster.build_optimize_graph().compile(name="optimize")
WAYS: dict[str, Any] = {
    "as_node": kernelblaster.as_node(context=CONTEXT),  # It reads kernel_task.
    "compiled": GRAPH,  # It reads task and writes result: keys that both graphs share.
    "own": own,
}


async def main(task: str, way: str = "as_node") -> str:
    """Run it once, printing every technique that was tried."""
    parent = StateGraph(State, context_schema=RunContext)
    parent.add_node("choose", choose)
    parent.add_node("kernel", WAYS[way])
    parent.add_node("tell", tell)
    parent.add_edge(START, "choose")
    parent.add_edge("choose", "kernel")
    parent.add_edge("kernel", "tell")
    parent.add_edge("tell", END)
    # A database in its place keeps the run over a restart: ainvoke(None, config) goes on.
    allowed = kernelblaster.checkpoint_types()
    saver = InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=allowed))
    graph = parent.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "one"}}
    async for _, event in graph.astream(
        {"task": task}, config, context=CONTEXT, stream_mode="custom", subgraphs=True
    ):
        if event["event"] == "step":
            print(f"{event['technique']}: {event['outcome']}")
    return (await graph.aget_state(config)).values["answer"]


if __name__ == "__main__":
    print(asyncio.run(main(*sys.argv[1:])))

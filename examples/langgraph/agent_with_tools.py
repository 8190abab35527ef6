"""An agent of your own that writes, mends and measures a kernel with KernelBlaster's tools alone.

    python examples/langgraph/agent_with_tools.py                 # rehearsed moves: no key, no GPU
    python examples/langgraph/agent_with_tools.py openai:gpt-5    # a model that calls tools
    python examples/langgraph/agent_with_tools.py --device cuda   # on the GPU that is here
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import kernelblaster

TASK = Path(__file__).parents[1] / "row_sum.py"
WISH = "Write a CUDA kernel for the task, make sure that it is right, then make it fast."


def react(model: BaseChatModel, tools: list[Any]) -> Any:
    """Return a graph in which a model calls tools until it has something to say."""
    bound = model.bind_tools(tools)

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [bound.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    return graph.compile()


# Without a model: the moves that one would make ---------------------------------------------------

FIRST_TRY = """```cuda
#include "task.cuh"
__global__ void sum_rows(const float* x, float* y) {
    long long row = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (long long i = 0; i < X_SIZE_1; ++i) sum += x[row * X_SIZE_1 + i];
    y[row] = sum;
}
extern "C" void launch(float* out0, const float* x) {
    sum_rows<<<(X_SIZE_0 + 95) / 96, 96>>>(x, out0);
}
```"""
SECOND_TRY = FIRST_TRY.replace(
    "const float* x) {\n    sum", "const float* x, void* workspace, cudaStream_t stream) {\n    sum"
).replace("96>>>", "96, 0, stream>>>")
THIRD_TRY = SECOND_TRY.replace("    float sum", "    if (row >= X_SIZE_0) return;\n    float sum")


def moves(newest: str) -> list[list[tuple[str, dict[str, Any]]]]:
    """Return what is called, turn by turn; `newest` is the id of the newest kernel."""
    return [
        [("show_task", {})],
        [("compile_kernel", {"source": FIRST_TRY})],  # Refused: launch has another signature.
        [("run_kernel", {"source": SECOND_TRY})],  # Refused: rows beyond the last are written.
        [("run_kernel", {"source": THIRD_TRY})],
        [("profile_kernel", {"source": newest})],
        [("search_knowledge", {"query": "one thread loops over a whole row"})],
        [("apply_technique", {"technique": "parallelize_row_reduction", "source": newest})],
        [("profile_kernel", {"source": newest})],
    ]


class Rehearsed(BaseChatModel):
    """A chat model that makes prepared moves and then repeats the last answer's first line."""

    script: Any = moves
    """Returns the moves, given the newest kernel."""

    @property
    def _llm_type(self) -> str:
        return "rehearsed"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        said = [str(message.content) for message in messages]
        kernels = [found for text in said for found in re.findall(r"kernel-[0-9a-f]{12}", text)]
        left = self.script(kernels[-1] if kernels else "")[turn:]
        calls = [
            {"name": name, "args": arguments, "id": f"call_{turn}_{number}"}
            for number, (name, arguments) in enumerate(left[0] if left else ())
        ]
        text = "" if left else said[-1].split("\n")[0]
        return ChatResult(
            generations=[ChatGeneration(message=AIMessage(text, tool_calls=calls))]
        )


def chosen(name: str) -> BaseChatModel:
    """Return the model of a name, `openai:NAME`, or the rehearsed one."""
    if not name:
        return Rehearsed()
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=name.removeprefix("openai:"))


def main(
    name: str = "", task: Path = TASK, device: str = "simulated", gpu: str = "", **options: Any
) -> list[BaseMessage]:
    """Have the agent do its work, show it, and return the conversation."""
    with kernelblaster.agent_tools(task, device=device, gpu=gpu, **options) as tools:
        agent = react(chosen(name), tools)
        config = {"recursion_limit": 100}
        conversation = agent.invoke({"messages": [HumanMessage(WISH)]}, config)["messages"]
    for message in conversation:
        for call in getattr(message, "tool_calls", ()):
            print(f"--> {call['name']}")
        if message.content:
            print(str(message.content)[:400], end="\n\n")
    return list(conversation)


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("name", nargs="?", default="", help="openai:NAME; else moves are rehearsed")
    asked.add_argument("--task", type=Path, default=TASK)
    asked.add_argument("--device", default="simulated", help="simulated, cuda, or cuda:1")
    asked.add_argument("--gpu", default="", help="which to simulate, or that the real one must be")
    try:
        main(**vars(asked.parse_args()))
    except kernelblaster.UserError as error:
        sys.exit(str(error))

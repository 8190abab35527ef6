"""An agent of your own with one tool: a task goes in, the whole loop runs, its result comes back.

    python examples/langgraph/agent_that_delegates.py examples/softmax.py               # rehearsed
    python examples/langgraph/agent_that_delegates.py examples/softmax.py openai:gpt-5
"""

from __future__ import annotations

import sys
from typing import Any

from agent_with_tools import Rehearsed, chosen, react
from langchain_core.messages import BaseMessage, HumanMessage

import kernelblaster
from kernelblaster import RunContext


def main(task: str, name: str = "") -> list[BaseMessage]:
    """Have the agent do its work, showing progress, and return the conversation."""
    tool = kernelblaster.as_tool(RunContext(iterations=1, rollouts=2, steps=2))
    calls = [[(tool.name, {"task": task})]]
    model = chosen(name) if name else Rehearsed(script=lambda newest: calls)
    wish: dict[str, Any] = {"messages": [HumanMessage(f"Make {task} faster; what came of it?")]}
    for mode, part in react(model, [tool]).stream(wish, stream_mode=["custom", "values"]):
        if mode == "values":
            wish = part
        elif part["event"] == "step":
            print(f"{part['technique']}: {part['outcome']}")
    print(wish["messages"][-1].content)
    return list(wish["messages"])


if __name__ == "__main__":
    main(*sys.argv[1:])

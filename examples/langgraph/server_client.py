"""A client of a started server: `langgraph dev` here, this script anywhere.

    python examples/langgraph/server_client.py http://127.0.0.1:2024 examples/softmax.py
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from langgraph_sdk import get_client


async def main(url: str, task: str) -> Any:
    """Run once, printing what each agent changed; `task` is a path that the server can read."""
    client = get_client(url=url)
    thread = await client.threads.create()
    async for part in client.runs.stream(
        thread["thread_id"], "optimize", input={"task": task},
        context={"iterations": 1, "rollouts": 2, "steps": 2},
        stream_mode=["updates", "custom"], stream_subgraphs=True,
    ):  # fmt: skip
        if part.event == "error":
            sys.exit(part.data["message"])
        if part.event.startswith("updates"):
            for agent, update in part.data.items():
                print(f"{agent}: {', '.join(update or ())}")
    state = await client.threads.get_state(thread["thread_id"])
    return state["values"]["result"]


if __name__ == "__main__":
    print(asyncio.run(main(*sys.argv[1:]))["gain"])

"""Child process of the kill tests: ask a model at places 0, 1, 2 ... of a run directory.

usage: ask_child.py DIRECTORY BASE_URL COUNT
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kernelblaster.memory.run.artifacts import ArtifactStore
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.tools.models.asking import Asker
from kernelblaster.tools.models.records import Message, ModelPlan


async def main(directory: str, base_url: str, count: str) -> None:
    plan = ModelPlan(roles={"kernel_writer": "openai:small"}, base_url=base_url)
    root = Path(directory)
    with RunStore(root / "run.sqlite") as store:
        asker = Asker(plan, root, store, ArtifactStore(root / "artifacts"))
        for place in range(int(count)):
            question = Message(role="user", content=f"question {place}")
            answer = await asker.text("kernel_writer", (place,), (question,), str)
            print(answer.value, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

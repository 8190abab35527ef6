"""Child process of the kill tests: run or resume a run whose every role a model answers.

usage: every_role_child.py create|open DIRECTORY KNOWLEDGE
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import graph_support
from text_run_child import replace

from kernelblaster.graph.session import Session
from kernelblaster.nodes.records import OptimizeRequest


def main(mode: str, directory: str, knowledge: str) -> None:
    graph_support.install(replace)
    if mode == "create":
        request = OptimizeRequest(
            task="text.py", knowledge=knowledge, iterations=1, rollouts=2, steps=2,
            model="import:every_role:model",
        )  # fmt: skip
        session = Session.create(Path(directory), request)
    else:
        session = Session.open(Path(directory))
    try:
        result = asyncio.run(session.run())
    finally:
        session.close()
    print(result.model_dump_json())


if __name__ == "__main__":
    main(*sys.argv[1:])

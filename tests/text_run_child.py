"""Child process of the kill tests: run or resume a run directory on the text device.

usage: text_run_child.py create|open DIRECTORY KNOWLEDGE SEED
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

import graph_support

from kernelblaster.graph.session import Session
from kernelblaster.nodes.records import OptimizeRequest


def replace(name: str, value: Any) -> None:
    module, _, attribute = name.rpartition(".")
    setattr(importlib.import_module(module), attribute, value)


def main(mode: str, directory: str, knowledge: str, seed: str) -> None:
    graph_support.install(replace)
    if mode == "create":
        request = OptimizeRequest(
            task="text.py", knowledge=knowledge, seed=int(seed), iterations=2, rollouts=2, steps=3
        )
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

"""Child process of the kill tests: creates or opens a run on the text device, and runs it.

usage: run_child.py DIRECTORY [REQUEST]    with a request (JSON) the run is created
"""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import graph_support
from asked import Asked

from kernelblaster.graph.session import Session


def start_run(
    directory: Path, request: Asked | None, **environment: str
) -> subprocess.Popen[str]:
    """Start this file as a process that creates a run (with a request) or opens it (without)."""
    words = [request.model_dump_json()] if request else []
    return subprocess.Popen(
        [sys.executable, __file__, str(directory), *words],
        env=os.environ | {"PYTHONPATH": support_paths()} | environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def support_paths() -> str:
    """Return $PYTHONPATH of a child that imports what tests import."""
    return os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])


def replace(name: str, value: Any) -> None:
    module, _, attribute = name.rpartition(".")
    setattr(importlib.import_module(module), attribute, value)


def main(directory: str, request: str = "") -> None:
    graph_support.install(replace)
    if request:
        session = Asked.model_validate_json(request).session(Path(directory))
    else:
        session = Session.open(Path(directory))
    try:
        result = asyncio.run(session.run())
    finally:
        session.close()
    print(result.model_dump_json())


if __name__ == "__main__":
    main(*sys.argv[1:])

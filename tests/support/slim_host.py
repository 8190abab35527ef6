"""The host of a deferred run's jobs, with nothing but the harness installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FORBIDDEN = (
    "langgraph", "langchain_core", "chromadb", "typer", "rich", "sqlite_utils", "pydantic_settings",
    "tree_sitter", "aiosqlite",
)  # fmt: skip
"""What the GPU host need not have."""


SLIM = (
    "import sys, runpy\n"
    "class Missing:\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    f"        if name.split('.')[0] in {FORBIDDEN!r}:\n"
    "            raise ModuleNotFoundError(f'not installed here: {name}')\n"
    "sys.meta_path.insert(0, Missing())\n"
    "sys.argv[0] = 'jobs'\n"
    "runpy.run_module('kernelblaster.harness.jobs', run_name='__main__')\n"
)


def run_slim(jobs: Path, results: Path, device: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SLIM, "run", str(jobs), "-o", str(results), "--device", device],
        capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip

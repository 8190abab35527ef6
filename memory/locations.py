"""Where runs and the knowledge base live unless a person says otherwise."""

from __future__ import annotations

import os
import re
from pathlib import Path


def default_knowledge_directory() -> Path:
    """Return $KERNELBLASTER_KB, or kernelblaster/knowledge under the user's data directory."""
    chosen = os.environ.get("KERNELBLASTER_KB")
    if chosen:
        return Path(chosen)
    data = os.environ.get("XDG_DATA_HOME")
    base = Path(data) if data else Path.home() / ".local" / "share"
    return base / "kernelblaster" / "knowledge"


def default_runs_directory() -> Path:
    """Return $KERNELBLASTER_RUNS, or `runs` in the working directory."""
    return Path(os.environ.get("KERNELBLASTER_RUNS") or "runs")


def new_run_directory(task_name: str, root: Path | None = None) -> Path:
    """Return the first free ROOT/TASK-N; not created. N counts from 1."""
    root = root or default_runs_directory()
    stem = re.sub(r"[^A-Za-z0-9_.-]", "-", task_name) or "task"
    number = 1
    while (root / f"{stem}-{number}").exists():
        number += 1
    return root / f"{stem}-{number}"

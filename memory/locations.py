"""Where runs and the knowledge base live unless a person says otherwise."""

from __future__ import annotations

import os
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

"""Finds the processes in which candidates run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def workers_of(process: int) -> list[int]:
    """Return the workers that a process had started: forked by the server that is its child."""
    parents = dict(_running(b"harness.simt.worker"))
    return [worker for worker, parent in parents.items() if parents.get(parent) == process]


def host_halves_of(process: int) -> list[int]:
    """Return the processes of host halves that a process has started."""
    return [half for half, parent in _running(b"/host-half-") if parent == process]


def _running(words: bytes) -> Iterator[tuple[int, int]]:
    """Yield each living process with these words in its command, and its parent."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if words in command and state not in "ZX":
            yield int(entry.name), int(parent)

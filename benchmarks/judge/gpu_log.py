"""What benchmarks on a GPU share: JSON lines, and what a candidate may leave behind."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

WATCHER = "orphan_watcher.py"


class Log:
    """Prints JSON lines; where OUT names a folder, they are kept in a file there too."""

    def __init__(self, name: str) -> None:
        folder = os.environ.get("OUT")
        self._path = Path(folder, f"{name}.jsonl") if folder else None
        self.failures = 0

    def write(self, kind: str, **values: Any) -> None:
        """Write one line."""
        line = json.dumps({"kind": kind, **values})
        print(line, flush=True)
        if self._path:
            with self._path.open("a") as file:
                file.write(line + "\n")

    def expect(self, right: bool, what: str) -> None:
        """Count and tell what is not as it must be."""
        if not right:
            self.failures += 1
            self.write("FAILED", what=what)


def gpu_memory() -> int:
    """Return the MiB in use on the fullest GPU; -1 where nvidia-smi does not say."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.split()
        return max(int(number) for number in found)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return -1


def processes() -> dict[int, str]:
    """Return the command lines of all processes that descend from this one, zombies included.

    But for the one that watches over the others: it ends with this one, not before.
    """
    parents: dict[int, int] = {}
    words: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        number = int(entry.name)
        parents[number], words[number] = int(status[1]), f"{status[0]} {command.strip()}"
    mine = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in mine} - mine:
        mine |= more
    watched = mine - {os.getpid()}
    return {number: words[number] for number in watched if WATCHER not in words[number]}


def workers() -> list[str]:
    """Return the command lines of GPU workers, whoever's children they became."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "harness.cuda.worker" in words:
            found.append(words.strip())
    return found


def settled_memory(limit: int, seconds: float = 20.0) -> int:
    """Return the MiB in use once they are within `limit`, or after some seconds."""
    deadline = time.monotonic() + seconds
    while (used := gpu_memory()) > limit and time.monotonic() < deadline:
        time.sleep(0.5)
    return used

"""Child processes for tests, and whether they still live."""

from __future__ import annotations

import time
from pathlib import Path

from kernelblaster.harness.process.children import run_process, scrubbed_environment


def sleep_process(folder: Path, seconds: float, limit: float = 60.0) -> int:
    """Run a shell that starts a sleeping child of its own and writes that child's pid."""
    script = f"sleep {seconds} & echo $! > pid; wait"
    return run_process(
        ["/bin/sh", "-c", script],
        directory=folder,
        environment=scrubbed_environment(folder),
        log=folder / "log",
        seconds=limit,
    )


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def stays_alive(pid: int) -> bool:
    """Say whether a killed process is still there after some seconds: it ends when it next runs."""
    deadline = time.monotonic() + 10.0
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return alive(pid)

"""The command line as a user runs it, and the one clear line it answers bad input with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def kernelblaster(
    *arguments: object, folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    import os

    return subprocess.run(
        [sys.executable, "-m", "kernelblaster", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
    )


def assert_one_clear_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    complaint = [line for line in done.stderr.splitlines() if line.startswith("kernelblaster: ")]
    assert len(complaint) == 1, done.stderr
    for word in words:
        assert word in complaint[0], complaint[0]

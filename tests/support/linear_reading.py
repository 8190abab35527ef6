"""Runs Python in a process that the kernel ends after some seconds of work.

Reading that tries every start against every end of a long text takes many.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys

SECONDS = 40
"""Of CPU time."""


def run_limited(program: str, seconds: int = SECONDS) -> None:
    """Run a program; fails with what it last printed where it does not end well in time."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        preexec_fn=limit, env=dict(os.environ) | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stdout[-200:], done.stderr[-500:])

"""Measures one side of two, this checkout's code or another's, in a process of its own.

A script that is run with `--side` measures with the package that is imported and prints JSON.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from typing import Any


def beginning() -> str:
    """Return when a measurement begins, on how many cores, and what they have to do."""
    return (
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f} at the start"
    )


def measured(name: str, python: str, script: str, *arguments: str) -> Any:
    """Return what a script says of the side of an interpreter.

    Raises:
        SystemExit: it failed; says the side's name, and why.
    """
    command = [python, script, "--side", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-1500:]}")
    return json.loads(done.stdout.splitlines()[-1])

"""Child processes that cannot outlive, outlast or out-talk their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


class TimedOut(Exception):
    """The child ran past its time limit and was killed with its whole process group."""


async def run_process(
    command: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    log: Path,
    seconds: float,
) -> int:
    """Run a command in its own process group and return its exit status (negative: the signal).

    Standard output and error go to the file `log`, together. On time-out (raises TimedOut) and on
    cancellation the whole group is killed first. Raises OSError where it cannot be started.
    """
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=directory,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        raise TimedOut from None
    finally:
        # Also after a normal end: a compiler or interpreter may have left children behind.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if process.returncode is None:
            await process.wait()


def read_log(log: Path, limit: int = 1 << 20) -> str:
    """Return the first `limit` bytes of a log as text; whatever is not UTF-8 is replaced."""
    with log.open("rb") as file:
        return file.read(limit).decode("utf-8", "replace")


def scrubbed_environment(home: Path) -> dict[str, str]:
    """Return an environment without the parent's secrets: PATH and a scratch HOME and TMPDIR."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "TMPDIR": str(home),
        "LC_ALL": "C.UTF-8",
    }


def python_environment(home: Path) -> dict[str, str]:
    """Return `scrubbed_environment` with this interpreter's search path, to find us by."""
    environment = scrubbed_environment(home)
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    for name in ("LD_LIBRARY_PATH", "OMP_NUM_THREADS"):
        if name in os.environ:
            environment[name] = os.environ[name]
    return environment

"""Ends what a killed process leaves running: a watcher beside it that sees its pipe close.

The watcher is told of a process group once that runs, and whoever is killed between the two tells
it nothing: what bears this process' mark in its environment ends too.

Not by PR_SET_PDEATHSIG: that signal comes when the thread ends that started the child, which
threads of a pool may do at any time, and it reaches the child alone, not the compilers and
interpreters that the child started. Setting it would also take code between fork and exec of a
process with many threads.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

MARK_NAME = "KERNELBLASTER_STARTED_BY"
"""The variable whose value is the mark; what a child starts bears it too."""

_PROGRAM = Path(__file__).resolve().with_name("orphan_watcher.py")


class Watcher:
    """A small process that outlives this one by the moment it takes to kill what is left."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = secrets.token_hex(16)

    def mark(self) -> str:
        """Return what marks the children of this process; the watcher runs once this returns.

        Raises OSError as `add` does.
        """
        with self._mutex:
            self._running()
        return self._mark

    def add(self, group: int) -> None:
        """Have a process group killed when this process ends, however it ends.

        Raises OSError where no watcher can be started: nothing else could be started then either.
        """
        self._tell(b"+%d\n" % group)

    def remove(self, group: int) -> None:
        """Leave a process group alone from now on: it has ended."""
        self._tell(b"-%d\n" % group)

    def _tell(self, line: bytes) -> None:
        with self._mutex:
            for _ in range(2):
                pipe = self._running().stdin
                assert pipe is not None
                try:
                    # Unbuffered and shorter than a pipe's unit: whole, also between two processes.
                    pipe.write(line)
                    return
                except OSError:
                    # Somebody killed it; what it knew is lost, what comes is not.
                    self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        """Return the small process, started where it is not there; the mutex is held."""
        if self._process is None or self._process.poll() is not None:
            self._process = self._start()
        return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM), f"{MARK_NAME}={self._mark}"],
            cwd="/",
            env={"LC_ALL": "C.UTF-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C and a terminal that closes are for the process that is watched.
            start_new_session=True,
            bufsize=0,
        )


@contextlib.contextmanager
def ended_with_us(group: int) -> Iterator[None]:
    """While the block runs, a process group ends when this process does, even by SIGKILL."""
    watcher = watcher_of(os.getpid())
    watcher.add(group)
    try:
        yield
    finally:
        watcher.remove(group)


@functools.cache
def watcher_of(process: int) -> Watcher:
    """Return the one watcher of this process, whose number is given: a fork gets another."""
    return Watcher()


def marked(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for a child that ends with this process, whatever it was told of it.

    Raises OSError where no watcher can be started.
    """
    return {**environment, MARK_NAME: watcher_of(os.getpid()).mark()}

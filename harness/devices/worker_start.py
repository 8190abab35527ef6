"""Runs a worker to its end: forked by a process that is kept warm, or started anew without one."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from ..orphans import ended_with_us, watcher_of
from ..processes import (
    Cancelled,
    TimedOut,
    caller_cancelled,
    python_environment,
    run_process,
)
from ..simt.worker import Order

LOOK_SECONDS = 0.05
"""How often a waiting thread looks whether its caller was cancelled."""
START_SECONDS = 30.0


def run_worker(
    request: Path, *, directory: Path, environment: Mapping[str, str], log: Path, seconds: float
) -> int:
    """Serve a request's file in a process of its own; the rest is as in `run_process`."""
    order: Order = {
        "request": str(request), "directory": str(directory), "log": str(log),
        "environment": dict(environment),
    }  # fmt: skip
    try:
        return starter_of(os.getpid()).run(order, seconds)
    except _NoStarter:
        # It says best itself what stands in the way.
        command = [sys.executable, "-P", "-m", _module("worker"), str(request)]
        return run_process(
            command, directory=directory, environment=environment, log=log, seconds=seconds
        )


class _NoStarter(Exception):
    """The process that forks workers cannot be started, or ended."""


class Starter:
    """The process that forks workers, started when it is first wanted."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None

    def warm(self) -> None:
        """Have it begin to import, without waiting for that."""
        with self._mutex, contextlib.suppress(OSError):
            self._ensure()

    def run(self, order: Order, seconds: float) -> int:
        """Run one worker and return its status. Raises TimedOut, Cancelled, _NoStarter."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs, self._mutex:
                try:
                    orders = self._ensure()
                    socket.send_fds(orders, [json.dumps(order).encode()], [theirs.fileno()])
                except OSError as error:
                    raise _NoStarter(str(error)) from error
            try:
                worker = _number(ours, time.monotonic() + START_SECONDS)
            except TimedOut:
                worker = None
            if worker is None:
                raise _NoStarter("it does not answer")
            deadline = time.monotonic() + seconds
            with ended_with_us(worker):
                try:
                    status = _number(ours, deadline)
                except BaseException:
                    with contextlib.suppress(OSError):
                        ours.send(b"kill")
                    with contextlib.suppress(TimedOut):
                        _number(ours, time.monotonic() + START_SECONDS, heed_caller=False)
                    raise
            if status is None:
                # Its starter was killed: so is the worker, as it would have been in its place.
                with contextlib.suppress(OSError):
                    os.killpg(worker, signal.SIGKILL)
                return -signal.SIGKILL
            return status

    def close(self) -> None:
        """End the process, and with it the workers that run."""
        with self._mutex:
            if self._orders is not None:
                self._orders.close()
            if self._process is not None:
                self._process.wait()
                watcher_of(os.getpid()).remove(self._process.pid)
            self._process = self._orders = None

    def _ensure(self) -> socket.socket:
        if self._orders is not None and self._process is not None and self._process.poll() is None:
            return self._orders
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _module("worker_starter"), str(theirs.fileno())],
                cwd="/",
                env=python_environment(Path("/")) | {"OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        watcher_of(os.getpid()).add(self._process.pid)
        self._orders = ours
        return ours


@functools.cache
def starter_of(process: int) -> Starter:
    """Return the one starter of this process, whose number is given: a fork gets another."""
    starter = Starter()
    atexit.register(starter.close)
    return starter


def _number(ours: socket.socket, deadline: float, *, heed_caller: bool = True) -> int | None:
    """Return the next number told; None where the other end closed. Raises TimedOut, Cancelled."""
    ours.settimeout(LOOK_SECONDS)
    while True:
        try:
            return int(ours.recv(64))
        except TimeoutError:
            if heed_caller and caller_cancelled():
                raise Cancelled from None
            if time.monotonic() > deadline:
                raise TimedOut from None
        except (OSError, ValueError):
            return None


def _module(name: str) -> str:
    return f"{__name__.split('.')[0]}.harness.simt.{name}"

"""Runs a module's main to its end in a fork of a process kept warm, or in a new one without it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .children import Cancelled, TimedOut, caller_cancelled, python_environment, run_process
from .fork_server import Order
from .orphans import ended_with_us, watcher_of
from .scratch import new_scratch

LOOK_SECONDS = 0.05
"""How often a waiting thread looks whether its caller was cancelled."""
CLOSE_SECONDS = 2.0
START_SECONDS = 60.0
"""Importing PyTorch from a cold disk takes a while."""


@dataclass(frozen=True)
class Program:
    """A module with `main(arguments) -> status` and `warm()`, which imports all that main will."""

    module: str
    """Below this package: harness.simt.worker."""
    environment: tuple[tuple[str, str], ...] = ()
    """What it has to find when it is imported."""


def run_forked(
    program: Program,
    arguments: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    log: Path,
    seconds: float,
) -> int:
    """Call a program's main in a process of its own; the rest is as in `run_process`."""
    order: Order = {
        "arguments": list(arguments), "directory": str(directory), "log": str(log),
        "environment": dict(environment),
    }  # fmt: skip
    try:
        return server_of(os.getpid(), program).run(order, seconds)
    except _NoServer:
        # It says best itself what stands in the way.
        command = [sys.executable, "-P", "-m", _full_name(program.module), *arguments]
        return run_process(
            command, directory=directory, environment=environment, log=log, seconds=seconds
        )


class _NoServer(Exception):
    """The process that forks cannot be started, or ended."""


class ForkServer:
    """The process that forks for one program, started when it is first wanted."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._mutex = threading.Lock()
        self._answered = False
        self._home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None

    def warm(self) -> None:
        """Have it begin to import, without waiting for that."""
        with self._mutex, contextlib.suppress(OSError):
            self._ensure()

    def run(self, order: Order, seconds: float) -> int:
        """Run one process and return its status. Raises TimedOut, Cancelled, _NoServer."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs, self._mutex:
                try:
                    orders = self._ensure()
                    socket.send_fds(orders, [json.dumps(order).encode()], [theirs.fileno()])
                except OSError as error:
                    raise _NoServer(str(error)) from error
            try:
                forked = _number(ours, time.monotonic() + START_SECONDS)
            except TimedOut:
                forked = None
            if forked is None:
                raise _NoServer("it does not answer")
            self._answered = True
            deadline = time.monotonic() + seconds
            with ended_with_us(forked):
                try:
                    status = _number(ours, deadline)
                except BaseException:
                    with contextlib.suppress(OSError):
                        ours.send(b"kill")
                    with contextlib.suppress(TimedOut):
                        _number(ours, time.monotonic() + START_SECONDS, heed_caller=False)
                    raise
            if status is None:
                # The server was killed: so is what it forked, as it would have been in its place.
                with contextlib.suppress(OSError):
                    os.killpg(forked, signal.SIGKILL)
                return -signal.SIGKILL
            return status

    def close(self) -> None:
        """End the process, and with it what it forked."""
        with self._mutex:
            self._forget()

    def close_at_exit(self) -> None:
        """Do what `close` does; who interrupts it wants it sooner."""
        with contextlib.suppress(KeyboardInterrupt):
            self.close()

    def _forget(self) -> None:
        if self._orders is not None:
            self._orders.close()
        if self._process is not None:
            # Before its first answer it may be importing still, and has forked nothing.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_SECONDS if self._answered else 0.0)
            self._process.kill()
            self._process.wait()
            watcher_of(os.getpid()).remove(self._process.pid)
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
        self._process = self._orders = self._home = None
        self._answered = False

    def _ensure(self) -> socket.socket:
        if self._orders is not None and self._process is not None and self._process.poll() is None:
            return self._orders
        self._forget()
        self._home = new_scratch("server")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-P", "-m", _full_name("harness.process.fork_server"),
                    str(theirs.fileno()), _full_name(self._program.module),
                ],
                cwd="/",
                # A fork has no threads but one: let there be none before.
                env=python_environment(self._home)
                | {"OPENBLAS_NUM_THREADS": "1"}
                | dict(self._program.environment),
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
def server_of(process: int, program: Program) -> ForkServer:
    """Return this process' one server of a program; its number is given: a fork gets another."""
    server = ForkServer(program)
    atexit.register(server.close_at_exit)
    return server


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


def _full_name(module: str) -> str:
    return f"{__name__.split('.')[0]}.{module}"

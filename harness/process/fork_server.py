"""Runs programs by forking one process that has their modules imported and nothing else done.

    python -P -m kernelblaster.harness.process.fork_server DESCRIPTOR MODULE

Importing PyTorch, or NumPy and the simulator, takes longer than most of what is asked of them. This
process imports MODULE and calls its `warm()`; it never loads a candidate and reads no request. It
is told, over the sequenced-packet socket DESCRIPTOR, with which arguments to call MODULE's `main`,
and forks a process that does. What that process gives up (see simt/worker.py) it gives up itself,
after the fork. When the other end of the socket closes, all that still runs is killed.

Each message is JSON (see `Order`) with one end of another such socket, over which the new process'
number is sent at once and its exit status (negative: the signal) when it has ended. A message
back, or that socket's end, kills it. A server that is asked nothing for a while ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import NoReturn, TypedDict

IDLE_SECONDS = 300.0
"""After so long without anything to do the memory of what was imported is given back."""

Main = Callable[[list[str]], int]


class Order(TypedDict):
    """What one process is started with."""

    arguments: list[str]
    """Of the module's `main`."""
    directory: str
    """Its working directory."""
    log: str
    """Where its standard output and error go."""
    environment: dict[str, str]


LARGEST_ORDER = 1 << 20


def main(arguments: list[str]) -> int:
    """Serve a module, the second argument, until the socket named by the first closes."""
    orders = socket.socket(fileno=int(arguments[0]))
    module = importlib.import_module(arguments[1])
    module.warm()
    ended, tell = os.pipe()
    for descriptor in (ended, tell):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    # What is shared with the forks stays shared: a collection would write to all of it.
    gc.freeze()
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(orders, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while True:
            ready = selector.select(IDLE_SECONDS)
            if not ready and not running:
                return 0
            for key, _ in ready:
                if key.fileobj is orders:
                    message, descriptors, _, _ = socket.recv_fds(orders, LARGEST_ORDER, 1)
                    if not message:
                        for forked in running:
                            _kill(forked)
                        return 0
                    asker = socket.socket(fileno=descriptors[0])
                    forked = os.fork()
                    if forked == 0:
                        _become(module.main, json.loads(message))
                    running[forked] = asker
                    selector.register(asker, selectors.EVENT_READ, forked)
                    _tell(asker, forked)
                elif key.fileobj == ended:
                    os.read(ended, 4096)
                    for forked, status in _ended(running):
                        asker = running.pop(forked)
                        with contextlib.suppress(KeyError):
                            selector.unregister(asker)
                        _tell(asker, status)
                        asker.close()
                elif key.data in running:
                    selector.unregister(key.fileobj)
                    _kill(key.data)


def _ended(running: dict[int, socket.socket]) -> list[tuple[int, int]]:
    """Return the processes that have ended, with their statuses, and kill what they left behind."""
    found = []
    for forked in running:
        if os.waitid(os.P_PID, forked, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            continue
        # While it has not been waited for, its number is nobody else's.
        _kill(forked)
        found.append((forked, os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])))
    return found


def _kill(forked: int) -> None:
    for kill in (os.killpg, os.kill):  # It may not yet lead a group of its own.
        with contextlib.suppress(OSError):
            kill(forked, signal.SIGKILL)


def _tell(asker: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):
        asker.send(b"%d" % number)


def _become(main: Main, order: Order) -> NoReturn:
    """Be the new process: one that knows nothing of the others, and ends here."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.chdir(order["directory"])
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        # The sockets of the others, above all.
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            if descriptor > 2:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        os.environ.clear()
        os.environ.update(order["environment"])
        tempfile.tempdir = None  # What was found for the server's environment.
        status = main(order["arguments"])
    except BaseException:  # Nothing may return into the loop above.
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

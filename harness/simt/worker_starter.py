"""Starts workers by forking one process that has their modules imported and nothing else done.

    python -P -m ...simt.worker_starter DESCRIPTOR

Importing NumPy and the simulator takes longer than most candidates. This process never loads a
candidate and reads no request's file: it is told, over the sequenced-packet socket DESCRIPTOR,
which worker to start, and forks it. What a worker gives up (see worker.py) it gives up itself,
after the fork. When the other end of the socket closes, all that still runs is killed.

Each message is JSON (see `Order`) with one end of another such socket, over which the worker's
process number is sent at once and its exit status (negative: the signal) when it has ended. A
message back, or that socket's end, kills the worker.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from typing import NoReturn

from . import profile_run, verify_run  # noqa: F401  (what all workers import)
from .worker import Order
from .worker import main as work

LARGEST_ORDER = 1 << 20


def main(arguments: list[str]) -> int:
    """Start workers until the socket named by the only argument closes."""
    orders = socket.socket(fileno=int(arguments[0]))
    ended, tell = os.pipe()
    for descriptor in (ended, tell):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    # What is shared with the workers stays shared: a collection would write to all of it.
    gc.freeze()
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(orders, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is orders:
                    message, descriptors, _, _ = socket.recv_fds(orders, LARGEST_ORDER, 1)
                    if not message:
                        for worker in running:
                            _kill(worker)
                        return 0
                    asker = socket.socket(fileno=descriptors[0])
                    worker = os.fork()
                    if worker == 0:
                        _become_worker(json.loads(message))
                    running[worker] = asker
                    selector.register(asker, selectors.EVENT_READ, worker)
                    _tell(asker, worker)
                elif key.fileobj == ended:
                    os.read(ended, 4096)
                    for worker, status in _ended(running):
                        asker = running.pop(worker)
                        with contextlib.suppress(KeyError):
                            selector.unregister(asker)
                        _tell(asker, status)
                        asker.close()
                elif key.data in running:
                    selector.unregister(key.fileobj)
                    _kill(key.data)


def _ended(running: dict[int, socket.socket]) -> list[tuple[int, int]]:
    """Return the workers that have ended, with their statuses, and kill what they left behind."""
    found = []
    for worker in running:
        if os.waitid(os.P_PID, worker, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            continue
        # While it has not been waited for, its number is nobody else's.
        _kill(worker)
        found.append((worker, os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])))
    return found


def _kill(worker: int) -> None:
    for kill in (os.killpg, os.kill):  # It may not yet lead a group of its own.
        with contextlib.suppress(OSError):
            kill(worker, signal.SIGKILL)


def _tell(asker: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):
        asker.send(b"%d" % number)


def _become_worker(order: Order) -> NoReturn:
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
        status = work([order["request"]])
    except BaseException:  # Nothing may return into the loop above.
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

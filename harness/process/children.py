"""Child processes that cannot outlive, outlast or out-talk their parent."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from .orphans import ended_with_us, marked

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
First = TypeVar("First")
Second = TypeVar("Second")

POLL_SECONDS = 0.01
"""How often a waiting thread looks whether its child ended or its caller was cancelled."""

_cancelled: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar(
    "cancelled", default=None
)


class TimedOut(Exception):
    """The child ran past its time limit and was killed with its whole process group."""


class TooMuchOutput(Exception):
    """The child wrote more into its log than it may and was killed as above."""


class Cancelled(Exception):
    """The caller of `off_loop` was cancelled; whatever child was running is dead."""


def caller_cancelled() -> bool:
    """Say whether the caller of `off_loop`, in whose thread this runs, was cancelled."""
    event = _cancelled.get()
    return event is not None and event.is_set()


async def off_loop(
    function: Callable[Parameters, Result],
    *arguments: Parameters.args,
    **keywords: Parameters.kwargs,
) -> Result:
    """Run a blocking function in a thread; when the caller is cancelled, end its child processes.

    The harness reads and writes files between waiting for compilers and candidates. On an event
    loop those small blocking calls would stall every other run of a server.
    """
    event = threading.Event()
    context = contextvars.copy_context()
    context.run(_cancelled.set, event)
    work = asyncio.get_running_loop().run_in_executor(
        None, partial(context.run, function, *arguments, **keywords)
    )
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        event.set()
        # Its exception is read, so that it is not reported as forgotten, also where the caller is
        # cancelled a second time while it waits here.
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([work])
        raise


def in_background(function: Callable[[], Result]) -> Future[Result]:
    """Run a blocking function in a thread; its child processes end when the main thread does."""
    future: Future[Result] = Future()

    def run() -> None:
        _cancelled.set(_MainThreadEnded())
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=contextvars.Context().run, args=(run,)).start()
    return future


class _MainThreadEnded(threading.Event):
    def is_set(self) -> bool:
        return not threading.main_thread().is_alive()


def result_of(future: Future[Result]) -> Result:
    """Wait for what runs in the background. Raises its exception, or Cancelled."""
    while not wait([future], POLL_SECONDS).done:
        if caller_cancelled():
            raise Cancelled
    return future.result()


def together(
    *functions: Callable[[], Result], at_a_time: int | None = None
) -> list[Result]:
    """Run blocking functions at the same time, each in a thread; return their results in order.

    Where it is said, no more than so many at a time. All have ended when this returns or raises the
    first exception; cancellation reaches all.
    """
    with ThreadPoolExecutor(at_a_time or max(1, len(functions))) as pool:
        futures = [
            pool.submit(contextvars.copy_context().run, function) for function in functions
        ]
        return [future.result() for future in futures]


def both(first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
    """Run two blocking functions with results of different types as `together` does."""
    functions: list[Callable[[], Any]] = [first, second]
    one, other = together(*functions)
    return one, other


class Turn:
    """What a child needs for a part of its time only, such as a GPU that nobody else uses.

    The child makes the file `asked`, waits until `given` is there, and removes `asked` when it
    needs no more: `given` goes once it is given back.
    """

    def __init__(
        self, directory: Path, taken: Callable[[], AbstractContextManager[object]],
        name: str = "turn",
    ) -> None:  # fmt: skip
        """Begin with nobody asking.

        Args:
            directory: where the two files are.
            taken: holds what is asked for; entering may block.
            name: of what is asked for, where a child asks for several.
        """
        self._asked, self._given = self.files(directory, name)
        self._taken, self._held = taken, ExitStack()
        self._asked.unlink(missing_ok=True)
        self._given.unlink(missing_ok=True)

    @staticmethod
    def files(directory: Path, name: str = "turn") -> tuple[Path, Path]:
        """Return the paths of `asked` and `given`."""
        return directory / f"{name}-asked", directory / f"{name}-given"

    def look(self) -> float:
        """Take what is asked for, or give it back; return the seconds that were waited for it."""
        asked, given = self._asked.exists(), self._given.exists()
        if asked and not given:
            began = time.monotonic()
            self._held.enter_context(self._taken())
            self._given.touch()
            return time.monotonic() - began
        if given and not asked:
            self.end()
        return 0.0

    def end(self) -> None:
        """Give back what is held; it may be asked for again."""
        self._asked.unlink(missing_ok=True)
        self._held.close()
        self._given.unlink(missing_ok=True)


def run_process(
    command: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    log: Path,
    seconds: float,
    most_log_bytes: int | None = None,
    confine: Callable[[], object] | None = None,
    turns: Sequence[Turn] = (),
) -> int:
    """Run a command in its own process group and return its exit status (negative: the signal).

    Standard output and error go to the file `log`, together. On time-out (raises TimedOut), where
    the log outgrows `most_log_bytes` (raises TooMuchOutput) and on cancellation of `off_loop`
    (raises Cancelled) the whole group is killed first, and so it is when this process itself is
    killed. `confine` shuts off the thread that starts the command, which nothing else runs on, and
    so all that the command does. What it waits for its `turns` is not counted against `seconds`.
    Raises OSError where it cannot be started.
    """
    event = _cancelled.get()
    deadline = time.monotonic() + seconds
    # By this thread: what a confined one starts is shut off too, and the watcher must not be.
    marked_environment = marked(environment)
    with log.open("wb") as output:

        def start() -> subprocess.Popen[bytes]:
            if confine is not None:
                confine()
            return subprocess.Popen(
                command,
                cwd=directory,
                env=marked_environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        process = start() if confine is None else in_background(start).result()
    try:
        with ended_with_us(process.pid):
            while process.poll() is None:
                if event is not None and event.is_set():
                    raise Cancelled
                deadline += sum(turn.look() for turn in turns)
                if time.monotonic() > deadline:
                    raise TimedOut
                if most_log_bytes is not None and log.stat().st_size > most_log_bytes:
                    raise TooMuchOutput
                time.sleep(POLL_SECONDS)
            return process.returncode
    finally:
        # Also after a normal end: a compiler or interpreter may have left children behind.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        for turn in turns:
            turn.end()


def read_log(log: Path, limit: int = 1 << 20) -> str:
    """Return the first `limit` bytes of a log as text; whatever is not UTF-8 is replaced.

    Nothing where a process was killed before it began one.
    """
    try:
        with log.open("rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def last_line(log: Path) -> str:
    """Return the last line of a log that holds something, at most 300 characters; "" without."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def signal_name(number: int) -> str:
    """Return the name of a signal; most real-time ones have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def how_it_ended(status: int, last: str = "") -> str:
    """Say how a process that ran a candidate's host code ended before it answered.

    `status` is negative where a signal killed it; `last` is what it wrote last.
    """
    said = f": {last}" if last else ""
    if status < 0:
        return f"host code was killed by {signal_name(-status)}{said}"
    if status == 0:
        return "the process ended early with status 0: host code did not return from launch()"
    return f"the process ended early with status {status}{said}"


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

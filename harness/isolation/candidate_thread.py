"""A thread for host code of candidates, shut off where the rest of its process is not.

Linux keeps a filter of system calls and a Landlock domain for each thread. The main thread, which
starts compilers and writes caches, stays as it is; only what runs here is shut off.
"""

from __future__ import annotations

import errno
import queue
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from . import landlock, seccomp
from .candidate_process import attempt, library_folders
from .privileges import no_new_privileges

Result = TypeVar("Result")


class Runner(Protocol):
    """Calls a function where host code is to run, and returns or raises what it does."""

    def __call__(self, call: Callable[[], Result], /) -> Result: ...


def run_here(call: Callable[[], Result], /) -> Result:
    """The runner that shuts nothing off."""
    return call()


class Unanswered(Exception):
    """The thread did not finish in time."""


class CandidateThread:
    """Runs calls, one at a time, on a thread that was shut off before the first of them.

    Args:
        readable: files and folders to read beside the system's and those of loaded libraries.
        devices: device files to read, write and control. Nothing else can be written.
        enclose: what shuts the thread off; returns in words what could not be applied.
    """

    def __init__(
        self,
        readable: Iterable[Path],
        devices: Iterable[Path],
        enclose: Callable[[Iterable[Path], Iterable[Path]], list[str]] | None = None,
    ) -> None:
        self._enclose = enclose or enclose_thread
        self._places = [*readable, *library_folders()], [*devices]
        self._calls: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="candidate")
        self._thread.start()
        self.missing: tuple[str, ...] = tuple(self.run(lambda: self._enclose(*self._places)))
        """What could not be applied, in words."""

    def run(self, call: Callable[[], Result], /, seconds: float | None = None) -> Result:
        """Run a call on the thread and return or raise what it does. Raises Unanswered.

        On the thread itself the call is made at once.
        """
        if threading.current_thread() is self._thread:
            return call()
        self._calls.put(call)
        try:
            result, error = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise Unanswered(f"no answer within {seconds:g} s") from None
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the thread after the call that it is in."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._answers.put((call(), None))
            except BaseException as error:  # carried over to the caller's thread
                self._answers.put((None, error))
            # The caller's objects are not kept alive until the next call.
            del call


def enclose_thread(readable: Iterable[Path], devices: Iterable[Path]) -> list[str]:
    """Shut this thread off for good; return in words what could not be applied here.

    Files can be read in `readable` only and not written; `devices` can be used. Refused system
    calls fail with EPERM: the CUDA driver runs here too, and must be able to go on without.
    """
    missing: list[str] = []
    refusal = seccomp.refuse_with(errno.EPERM)

    def restrict() -> None:
        missing.extend(
            landlock.restrict_files(
                readable=readable, writable=(), devices=devices,
                # Signals between the threads of one process would count as crossing it.
                scoped=False,
            )
        )  # fmt: skip

    attempt(missing, "no new privileges for host code", no_new_privileges)
    attempt(missing, "a file system of its own for host code", restrict)
    attempt(
        missing, "a filter of system calls for host code",
        lambda: seccomp.install(seccomp.rules_for_candidate(refusal), refusal),
    )  # fmt: skip
    return missing

"""Run a coroutine on an event loop of its own, in a thread, and cancel it there when asked.

The harness waits for compilers and child processes, and reads and writes files between. On the
graph's own loop those small blocking calls would stall every other run of a server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def in_own_loop(start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Await `start()` in a thread with its own loop; return its result or raise its exception.

    When the caller is cancelled, the coroutine is cancelled in its thread, so that it kills the
    child processes it waits for, and the cancellation goes on once it has ended.
    """
    runner = _Runner(start)
    work = asyncio.ensure_future(asyncio.to_thread(runner.run))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        runner.cancel()
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # Read, so that it is not reported as forgotten.
        raise


class _Runner:
    """One coroutine in one thread; `cancel` may come before, during or after it."""

    def __init__(self, start: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    def run(self) -> Any:
        """Run to the end in the calling thread."""
        return asyncio.run(self._main())

    async def _main(self) -> Any:
        with self._lock:
            if self._cancelled:
                raise _Cancelled
            self._loop = asyncio.get_running_loop()
            self._task = self._loop.create_task(self._start())
        try:
            return await self._task
        except asyncio.CancelledError:
            raise _Cancelled from None

    def cancel(self) -> None:
        """Cancel the coroutine, from any thread."""
        with self._lock:
            self._cancelled = True
            if self._loop is not None and self._task is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._task.cancel)


class _Cancelled(Exception):
    """The coroutine was cancelled: an ordinary exception, because a thread's future needs one."""

"""Work of a command that Ctrl-C and SIGTERM end in good order: children dead, folders removed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class Stopped(Exception):
    """The command was asked to end, and its work has."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number
        """As shells say it: 130 after Ctrl-C, 143 after SIGTERM."""


def run_until_stopped(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine as asyncio.run() does; a signal cancels it. To be called by the main thread.

    Raises Stopped after a signal, once everything that cancelling takes is done.
    """
    received: list[int] = []

    async def watched() -> Result:
        this = asyncio.current_task()
        assert this is not None

        def stop(number: int) -> None:
            received.append(number)
            this.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        return await work

    try:
        return asyncio.run(watched())
    except asyncio.CancelledError:
        if not received:
            raise
        raise Stopped(received[0]) from None

"""Wait for asynchronous work where nobody can await it: in plain code, in a notebook, in a tool."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Value = TypeVar("Value")


def wait_for(work: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine to its end: here, or beside a loop that is running already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    ended: list[Value | BaseException] = []
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)

    def beside() -> None:
        try:
            ended.append(loop.run_until_complete(task))
        except BaseException as error:
            ended.append(error)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    thread = threading.Thread(target=beside, name="kernelblaster")
    thread.start()
    try:
        thread.join()
    except BaseException:  # Interrupted: what runs beside ends too.
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    (found,) = ended
    if isinstance(found, BaseException):
        raise found
    return found

"""A coroutine on its own loop: results, exceptions, and cancellation that reaches it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kernelblaster.tools.own_loop import in_own_loop


async def test_results_and_exceptions_come_back() -> None:
    async def answer() -> tuple[int, str]:
        await asyncio.sleep(0)
        return 42, threading.current_thread().name

    value, name = await in_own_loop(answer)
    assert value == 42 and name != threading.current_thread().name

    async def fail() -> None:
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        await in_own_loop(fail)


async def test_the_callers_loop_is_not_blocked() -> None:
    import time

    async def block() -> str:
        time.sleep(0.3)
        return "done"

    ticks = 0
    work = asyncio.ensure_future(in_own_loop(block))
    while not work.done():
        ticks += 1
        await asyncio.sleep(0.01)
    assert await work == "done" and ticks > 5


async def test_cancelling_the_caller_ends_the_coroutine_first() -> None:
    began, cleaned = threading.Event(), threading.Event()

    async def forever() -> None:
        try:
            began.set()
            await asyncio.sleep(60)
        finally:
            cleaned.set()

    work = asyncio.ensure_future(in_own_loop(forever))
    while not began.is_set():
        await asyncio.sleep(0.01)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert cleaned.is_set()

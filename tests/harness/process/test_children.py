"""Blocking work off the event loop: results, exceptions, and cancellation that kills children."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from process_checks import sleep_process, stays_alive

from kernelblaster.harness.process.children import (
    TimedOut,
    off_loop,
    signal_name,
    together,
)


async def test_results_and_exceptions_come_back_and_the_loop_goes_on() -> None:
    def block(value: int) -> tuple[int, str]:
        time.sleep(0.3)
        return value, threading.current_thread().name

    work = asyncio.ensure_future(off_loop(block, 42))
    ticks = 0
    while not work.done():
        ticks += 1
        await asyncio.sleep(0.01)
    value, name = await work
    assert value == 42 and name != threading.current_thread().name and ticks > 3

    def fail() -> None:
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        await off_loop(fail)


async def test_cancelling_kills_every_child_before_it_is_reported(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()

    def both() -> list[int]:
        return together(*(partial(sleep_process, folder, 60.0) for folder in folders))

    work = asyncio.ensure_future(off_loop(both))
    pids = []
    for folder in folders:
        while not (folder / "pid").exists() or not (folder / "pid").read_text().strip():
            await asyncio.sleep(0.02)
        pids.append(int((folder / "pid").read_text()))
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert not any(stays_alive(pid) for pid in pids)


def test_a_child_that_runs_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    with pytest.raises(TimedOut):
        sleep_process(tmp_path, 60.0, limit=0.3)
    assert not stays_alive(int((tmp_path / "pid").read_text()))


def test_together_keeps_the_order() -> None:
    def after(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    assert together(partial(after, 0.1), partial(after, 0.0)) == [0.1, 0.0]


def test_every_signal_has_a_name() -> None:
    assert [signal_name(number) for number in (11, 50)] == ["SIGSEGV", "signal 50"]

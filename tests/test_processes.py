"""Blocking work off the event loop: results, exceptions, and cancellation that kills children."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from kernelblaster.harness.processes import (
    TimedOut,
    off_loop,
    run_process,
    scrubbed_environment,
    together,
)


def sleep_process(folder: Path, seconds: float, limit: float = 60.0) -> int:
    """Run a shell that starts a sleeping child of its own and writes that child's pid."""
    script = f"sleep {seconds} & echo $! > pid; wait"
    return run_process(
        ["/bin/sh", "-c", script],
        directory=folder,
        environment=scrubbed_environment(folder),
        log=folder / "log",
        seconds=limit,
    )


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def stays_alive(pid: int) -> bool:
    """Say whether a killed process is still there after some seconds: it ends when it next runs."""
    deadline = time.monotonic() + 10.0
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return alive(pid)


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

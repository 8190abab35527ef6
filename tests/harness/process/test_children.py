"""Blocking work off the event loop: results, exceptions, and cancellation that kills children."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from process_checks import sleep_process, stays_alive

from kernelblaster.harness.process.children import (
    TimedOut,
    Turn,
    off_loop,
    run_process,
    scrubbed_environment,
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


@pytest.mark.parametrize(
    ("ends", "status"),
    [("rm turn-asked; while [ -e held ]; do sleep 0.01; done", 0), ("exit 3", 3)],
    ids=["gives it back", "keeps it to its end"],
)
def test_a_turn_is_held_from_when_a_child_asks(tmp_path: Path, ends: str, status: int) -> None:
    held = tmp_path / "held"

    @contextmanager
    def taken() -> Iterator[None]:
        time.sleep(1.5)  # Longer than the child has: what it waits for is not counted.
        held.touch()
        yield
        held.unlink()

    waits = "touch turn-asked; while [ ! -e turn-given ]; do sleep 0.01; done"
    ended = run_process(
        ["sh", "-c", f"[ ! -e held ] || exit 8; {waits}; [ -e held ] || exit 9; {ends}"],
        directory=tmp_path, environment=scrubbed_environment(tmp_path), log=tmp_path / "log",
        seconds=1.0, turns=[Turn(tmp_path, taken)],
    )  # fmt: skip
    assert ended == status and not held.exists()


def test_a_child_asks_for_one_thing_after_the_other(tmp_path: Path) -> None:
    lock, held = threading.Lock(), list[str]()

    def named(name: str) -> Turn:
        @contextmanager
        def taken() -> Iterator[None]:
            assert lock.acquire(timeout=5)  # As of a GPU: who has it shared cannot be alone.
            held.append(name)
            yield
            lock.release()

        return Turn(tmp_path, taken, name)

    asks = "".join(
        f"touch {name}-asked; while [ ! -e {name}-given ]; do sleep 0.01; done; "
        f"rm {name}-asked; while [ -e {name}-given ]; do sleep 0.01; done; "
        for name in ("ready", "alone")
    )
    ended = run_process(
        ["sh", "-c", asks], directory=tmp_path, environment=scrubbed_environment(tmp_path),
        log=tmp_path / "log", seconds=20.0, turns=[named("ready"), named("alone")],
    )  # fmt: skip
    assert ended == 0 and held == ["ready", "alone"] and not lock.locked()


def test_together_keeps_the_order() -> None:
    def after(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    assert together(partial(after, 0.1), partial(after, 0.0)) == [0.1, 0.0]


def test_every_signal_has_a_name() -> None:
    assert [signal_name(number) for number in (11, 50)] == ["SIGSEGV", "signal 50"]

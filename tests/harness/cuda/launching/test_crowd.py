"""A call of which one launch has little room: what is enqueued, in which order, where it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from kernelblaster.harness.cuda.launching.candidate import DriverCall, Fault
from kernelblaster.harness.cuda.launching.crowd import COUNT, LEAVE, WAIT, Crowd
from kernelblaster.harness.host.plan import Plan, PlannedLaunch

FILL: Any = SimpleNamespace()
BROKEN: Fault = ("trap", "unspecified launch failure")


def launch(threads: int) -> PlannedLaunch:
    return PlannedLaunch("kernel", (9, 1, 1), (threads, 1, 1), 0, (), ())


class Recorded:
    """Steps that are noted where they would be enqueued."""

    failed_step = 0

    def __init__(self, count: int, code: int = 0) -> None:
        self.told: list[object] = []
        self._count, self._code = count, code

    def share_most(self, function: int, most: bool = True) -> None:
        self.told.append("most is shared" if most else "as it was")

    def run(self, stream: int, events: Any = None, part: slice = slice(None)) -> int:
        self.told += range(*part.indices(self._count))
        return self._code

    def finish(self) -> Fault | None:
        self.told.append("finished")
        return None

    @contextmanager
    def room(self, threads: int) -> Iterator[Callable[[], None]]:
        self.told.append(f"room for {threads}")
        yield lambda: self.told.append("begun")
        self.told.append("all may leave")


def crowded(number: int, *steps: Any, code: int = 0) -> list[object]:
    noted = Recorded(len(steps), code)
    plan = Plan(steps, 0, {}, 0.0)
    call(noted, plan).crowd(number, noted.room, noted.finish)
    return noted.told


def call(noted: Recorded, plan: Plan) -> DriverCall:
    return DriverCall(noted, 1, plan, {"kernel": 7}, noted)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [1, 3, 65_535])
def test_one_launch_has_little_room_and_what_stands_before_it_has_ended(number: int) -> None:
    assert crowded(number, FILL, launch(64), FILL, launch(96), FILL) == [
        0, 1, 2, "finished",
        "most is shared", "room for 96", 3, "begun", "finished", "all may leave", "as it was",
        4, "finished",
    ]  # fmt: skip


def test_a_call_that_launches_nothing_is_carried_out() -> None:
    assert crowded(5, FILL, FILL) == [0, 1, "finished"]
    assert crowded(0) == ["finished"]


def test_what_cannot_be_enqueued_ends_the_call() -> None:
    assert crowded(0, FILL, launch(32), FILL, code=701) == [0, "finished"]


def test_what_breaks_on_the_gpu_ends_the_call() -> None:
    noted = Recorded(2)
    answers = iter([None, BROKEN])
    made = call(noted, Plan((launch(32), FILL), 0, {}, 0.0))
    assert made.crowd(0, noted.room, lambda: next(answers)) == BROKEN
    assert noted.told == ["most is shared", "room for 32", 0, "begun", "all may leave"]


@pytest.mark.parametrize("came", [True, False])
def test_those_that_wait_count_down_once_the_candidate_is_enqueued(
    came: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not before: host and GPU may do something else for as long as they like.
    crowd = object.__new__(Crowd)
    seen = crowd._seen = numpy.full(3, 7)
    crowd.times = 0
    monkeypatch.setattr(crowd, "_fill", lambda threads, ends: bool(came and not seen.any()))
    with crowd.leaving_room_for(64) as begun:
        assert seen.tolist() == [WAIT, 0, 0]
        begun()
        assert seen[0] == COUNT
    assert (crowd.times, seen[0]) == (came, LEAVE)

"""Rollouts that need an answer: one question for those that need the same, once none works."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from langgraph.types import Interrupt

from kernelblaster.nodes.common.stopping.standstill import Rollouts


def question(name: str, hint: str = "") -> Interrupt:
    return Interrupt(value={"name": name, "hint": hint}, id=name)


async def test_nobody_asks_while_another_works() -> None:
    rollouts = Rollouts()
    async with contextlib.AsyncExitStack() as third:
        async with rollouts.working(), rollouts.working():
            await third.enter_async_context(rollouts.working())
            first = asyncio.create_task(rollouts.shared("calls", question("1", "no number"), 0))
            second = asyncio.create_task(rollouts.shared("calls", question("2"), 0))
            await asyncio.sleep(0)
            assert not first.done() and not second.done()
            await third.aclose()
            found = await asyncio.gather(first, second)
    assert [each and each.id for each in found] == ["2", "2"], "that of the last, for both"
    assert found[0] is not None and found[0].value["hint"] == "no number"


async def test_other_needs_are_other_questions() -> None:
    rollouts = Rollouts()
    async with rollouts.working(), rollouts.working():
        found = await asyncio.gather(
            rollouts.shared("calls", question("1"), 0), rollouts.shared("tokens", question("2"), 0)
        )
    assert [each and each.id for each in found] == ["1", "2"]


async def test_an_answer_has_all_look_again_also_those_that_looked_before_it_came() -> None:
    rollouts = Rollouts()
    async with rollouts.working(), rollouts.working(), rollouts.working():
        since = rollouts.answers
        waits = asyncio.create_task(rollouts.shared("calls", question("1"), since))
        await asyncio.sleep(0)
        rollouts.answered()
        assert await waits is None
        assert await rollouts.shared("calls", question("2"), since) is None


async def test_one_that_is_alone_asks_at_once_and_one_that_is_cancelled_is_forgotten() -> None:
    rollouts = Rollouts()
    assert await rollouts.shared("calls", question("1"), 0) == question("1")
    async with rollouts.working(), rollouts.working():
        waits = asyncio.create_task(rollouts.shared("calls", question("1"), 0))
        await asyncio.sleep(0)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        waits = asyncio.create_task(rollouts.shared("calls", question("2"), 0))
        await asyncio.sleep(0)
        assert not waits.done(), "the cancelled one works, or is on its way out"
        waits.cancel()

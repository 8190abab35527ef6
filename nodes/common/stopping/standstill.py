"""When parallel rollouts of a run cannot go on: one question for all of them, once none works."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from langgraph.types import Interrupt

Node = Callable[..., Awaitable[dict[str, Any]]]


class Rollouts:
    """The rollouts of a run that are under way in this process, all of one event loop.

    Who needs an answer waits until nobody else of them works: by then others may have got it, and
    who needs the same shares the question of the last that came, which knows of all of them.
    """

    def __init__(self) -> None:
        self.answers = 0
        """How many have come: who looked before the last has to look again."""
        self.begun: set[str] = set()
        """Keys of the evaluations that they have begun, made or under way."""
        self._working = 0
        self._stuck: dict[asyncio.Future[Interrupt | None], tuple[str, Interrupt]] = {}

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Count one more rollout as long as it is under way."""
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1
            self._look()

    async def shared(self, need: str, question: Interrupt, since: int) -> Interrupt | None:
        """Return the question to ask, which others may share; None where one was answered.

        Args:
            need: what is needed; those that need the same share a question.
            question: asks for it.
            since: `answers` when it was seen that something is needed.
        """
        if self.answers != since:
            return None
        found: asyncio.Future[Interrupt | None] = asyncio.get_running_loop().create_future()
        self._stuck[found] = need, question
        try:
            self._look()
            return await found
        finally:
            self._stuck.pop(found, None)

    def answered(self) -> None:
        """Have all that wait look once more: somebody got an answer, maybe theirs."""
        self.answers += 1
        for found in self._stuck:
            if not found.done():
                found.set_result(None)

    def _look(self) -> None:
        if sum(not found.done() for found in self._stuck) < self._working:
            return
        last = dict(self._stuck.values())
        for need, question in self._stuck.values():
            # Only the one that was answered knows why that was no answer.
            last[need].value["hint"] = last[need].value["hint"] or question.value["hint"]
        for found, (need, _) in self._stuck.items():
            if not found.done():
                found.set_result(last[need])


_AMONG: ContextVar[Rollouts | None] = ContextVar("rollouts", default=None)
"""Those that the code at hand is one of."""


def one_of_many(node: Node) -> Node:
    """Return a node that runs beside others of its like, and is counted as long as it does.

    It is counted before it does anything else: who comes first to a standstill knows of all.
    """

    @functools.wraps(node)
    async def counted(state: Mapping[str, Any], *rest: Any, **named: Any) -> dict[str, Any]:
        # A fork's rollouts read the plan of the run that it is about to leave, all the same one.
        rollouts = _under_way().setdefault(state["plan"].run, Rollouts())
        _AMONG.set(rollouts)
        async with rollouts.working():
            return await node(state, *rest, **named)

    return counted


def rollouts_at_hand() -> Rollouts:
    """Return the rollouts that the caller is one of; none where it is not."""
    return _AMONG.get() or Rollouts()


@functools.cache
def _under_way() -> WeakValueDictionary[str, Rollouts]:
    return WeakValueDictionary()

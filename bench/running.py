"""All runs of a bench: which goes next, on whom, and what is done when one stops or dies.

Runs that add to a knowledge base that they share are a chain: done one after the other in the order
of the tasks, each on what those before it learned. Chains do not touch each other, so that neither
their number at a time nor their speed changes a number. All other runs are a chain each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .crew import Died, Worker
from .directory import adds_knowledge, read_ended, write_ended
from .one_run import Unfinished, failed
from .records import Ended, PlannedRun, SuiteLock

Told = Callable[[str, PlannedRun, Any], None]
"""Hears `begun`, `event` (with it), `ended` (with Ended) and `unfinished` (with why) of a run."""


class Bench:
    """The runs of a bench that are left to do, and those who do them."""

    def __init__(
        self, directory: Path, lock: SuiteLock, workers: Sequence[Worker], told: Told
    ) -> None:
        """Look what is left to do.

        Raises:
            UserError: the end of a run cannot be read.
        """
        self._directory, self._workers, self._told = directory, workers, told
        self._chains = [
            [run for run in chain if read_ended(directory, run) is None]
            for chain in chains_of(lock)
        ]
        self._busy: set[int] = set()
        self._stopped = False
        self._changed = asyncio.Event()
        self.unfinished: dict[str, str] = {}
        """Runs that have to be asked for again, by label, and why."""

    async def run(self) -> None:
        """Do all that is left, as many runs at a time as there are workers.

        Raises:
            UserError: the bench's directory cannot be written.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for worker in self._workers:
                    group.create_task(self._work(worker))
        except* Exception as several:
            raise several.exceptions[0] from None
        finally:
            for worker in self._workers:
                await worker.close()

    def stop(self) -> None:
        """Begin no further run, and have those under way stop after their step."""
        self._stopped = True
        self._changed.set()
        for worker in self._workers:
            worker.stop()

    async def _work(self, worker: Worker) -> None:
        while not self._stopped:
            number = self._next_chain()
            if number is None:
                if not any(self._chains):
                    return
                self._changed.clear()
                await self._changed.wait()
                continue
            run = self._chains[number][0]
            self._busy.add(number)
            try:
                ended = await self._done(worker, run)
            finally:
                self._busy.discard(number)
            if ended is None:  # What comes after it in its chain needs it.
                self._chains[number].clear()
            else:
                self._chains[number].pop(0)
            self._changed.set()
        self._changed.set()

    def _next_chain(self) -> int | None:
        """Return the chain to go on with: of those that nobody works on the longest.

        Of equals one whose task nobody works on, who would find out anew what the other keeps of
        it; then the first, so that of a bench that is stopped whole tasks are over.
        """
        free = [n for n, chain in enumerate(self._chains) if chain and n not in self._busy]
        at_work = {self._chains[n][0].task for n in self._busy}

        def first(number: int) -> tuple[int, bool, int]:
            chain = self._chains[number]
            return len(chain), chain[0].task not in at_work, -number

        return max(free, key=first, default=None)

    async def _done(self, worker: Worker, run: PlannedRun) -> Ended | None:
        self._told("begun", run, None)
        for again in (True, False):
            try:
                ended = await worker.do(run, lambda event: self._told("event", run, event))
                break
            except Unfinished as stopped:
                self.unfinished[run.label] = str(stopped)
                self._told("unfinished", run, str(stopped))
                return None
            except Died as how:
                if again:  # Its place is saved: maybe the machine's memory was short.
                    continue
                ended = failed(self._directory, run, f"twice {how}")
                write_ended(self._directory, run, ended)
        self._told("ended", run, ended)
        return ended


def chains_of(lock: SuiteLock) -> list[list[PlannedRun]]:
    """Return the runs of a bench in chains, each in its order."""
    chains: dict[str, list[PlannedRun]] = {}
    for run in lock.runs:
        chain = run.chain if adds_knowledge(lock, run) else run.place
        chains.setdefault(chain, []).append(run)
    return list(chains.values())

"""The replay buffer: every step of every rollout, for policy evaluation and gap analysis."""

from __future__ import annotations

import threading
from bisect import insort
from collections.abc import Iterable

from ..database import Database
from ..records.evidence import Step

SCHEMA = """
CREATE TABLE IF NOT EXISTS steps (
    id TEXT PRIMARY KEY,
    run TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    rollout INTEGER NOT NULL,
    step INTEGER NOT NULL,
    technique TEXT NOT NULL,
    outcome TEXT NOT NULL,
    log_gain REAL,
    body TEXT NOT NULL
);
"""


class ReplayBuffer:
    """Steps keyed by their place in the run; a step replayed after a kill is stored once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._guard = threading.Lock()
        self._read: list[Step] = []
        """In order: agents ask for all that was before, at every step."""
        self._last = 0
        """Row that was read last: rows are only added."""

    def add(self, steps: Iterable[Step]) -> int:
        """Insert steps, ignoring those already there; return how many were new."""
        with self._database.transaction():
            return sum(
                self._database.execute(
                    "INSERT OR IGNORE INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        step.id,
                        step.run,
                        step.iteration,
                        step.rollout,
                        step.step,
                        step.technique,
                        step.outcome,
                        step.log_gain,
                        step.model_dump_json(),
                    ),
                )
                for step in steps
            )

    def steps(self, iteration: int | None = None) -> list[Step]:
        """Return the steps of one iteration, or all, ordered by iteration, rollout and step."""
        with self._guard:
            for row in self._database.rows(
                "SELECT rowid, body FROM steps WHERE rowid > ? ORDER BY rowid", (self._last,)
            ):
                insort(self._read, self._database.record(Step, row["body"], "a step"), key=_place)
                self._last = row["rowid"]
            return [step for step in self._read if iteration in (None, step.iteration)]


def _place(step: Step) -> tuple[int, int, int, str]:
    return step.iteration, step.rollout, step.step, step.run

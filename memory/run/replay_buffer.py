"""The replay buffer: every step of every rollout, for policy evaluation and gap analysis."""

from __future__ import annotations

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
        self._read: dict[str, Step] = {}
        """By their JSON: agents ask for all that was before, at every step."""

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
        rows = self._database.rows(
            "SELECT body FROM steps WHERE (?1 IS NULL OR iteration = ?1)"
            " ORDER BY iteration, rollout, step, run",
            (iteration,),
        )
        return [self._step(row["body"]) for row in rows]

    def _step(self, body: str) -> Step:
        if body not in self._read:
            self._read[body] = self._database.record(Step, body, "a step")
        return self._read[body]

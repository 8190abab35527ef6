"""What one run measured: evaluations, finished stages and the replay buffer, in `run.sqlite`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from ...harness.records import Evaluation
from ..database import Database
from .job_book import SCHEMA as JOBS_SCHEMA
from .job_book import JobBook
from .ledger import SCHEMA as LEDGER_SCHEMA
from .ledger import Ledger
from .replay_buffer import SCHEMA as REPLAY_SCHEMA
from .replay_buffer import ReplayBuffer

SCHEMA = """
CREATE TABLE IF NOT EXISTS evaluations (
    key TEXT PRIMARY KEY,
    source_sha256 TEXT NOT NULL,
    task_id TEXT NOT NULL,
    outcome TEXT NOT NULL,
    microseconds REAL,
    body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS stages (
    key TEXT NOT NULL,
    stage TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (key, stage)
);
"""


class RunStore:
    """Evaluations by key, stage results by (key, stage), `replay`, the replay buffer,
    `jobs`, what is asked of another host, and `ledger`, what was spent.

    The first row under a key stays: what is finished is never evaluated twice. Safe to call from
    several threads; use as a context manager, or call `close`. Any method raises UserError when
    the disk is full or the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        """Open or create `run.sqlite` at `path`."""
        self._database = Database(path, SCHEMA + REPLAY_SCHEMA + JOBS_SCHEMA + LEDGER_SCHEMA)
        self.replay = ReplayBuffer(self._database)
        self.jobs = JobBook(self._database)
        self.ledger = Ledger(self._database)

    def put(self, evaluation: Evaluation) -> bool:
        """Store an evaluation; return False where its key was already there."""
        timing = evaluation.timing
        return bool(
            self._database.execute(
                "INSERT OR IGNORE INTO evaluations VALUES (?, ?, ?, ?, ?, ?)",
                (
                    evaluation.key,
                    evaluation.source_sha256,
                    evaluation.task_id,
                    evaluation.outcome.value,
                    timing.microseconds if timing else None,
                    evaluation.model_dump_json(),
                ),
            )
        )

    def get(self, key: str) -> Evaluation | None:
        """Return the evaluation stored under a key, or None."""
        body = self._database.value("SELECT body FROM evaluations WHERE key = ?", (key,))
        return None if body is None else Evaluation.model_validate_json(body)

    def count(self) -> int:
        """Return how many evaluations are stored."""
        return int(self._database.value("SELECT COUNT(*) FROM evaluations"))

    def fastest(self) -> tuple[str, float] | None:
        """Return sha256 and microseconds of the fastest source that passed, or None."""
        rows = self._database.rows(
            "SELECT source_sha256, microseconds FROM evaluations WHERE outcome = 'passed' "
            "AND microseconds IS NOT NULL ORDER BY microseconds, source_sha256 LIMIT 1"
        )
        return (rows[0]["source_sha256"], float(rows[0]["microseconds"])) if rows else None

    def outcomes(self) -> dict[str, int]:
        """Return how many evaluations ended in each outcome, by outcome name."""
        rows = self._database.rows(
            "SELECT outcome, COUNT(*) AS n FROM evaluations GROUP BY outcome ORDER BY outcome"
        )
        return {row["outcome"]: row["n"] for row in rows}

    def put_stage(self, key: str, stage: str, body: str) -> bool:
        """Store the JSON of a finished stage (compile, verify, profile); False if already there."""
        return bool(
            self._database.execute(
                "INSERT OR IGNORE INTO stages VALUES (?, ?, ?)", (key, stage, body)
            )
        )

    def get_stage(self, key: str, stage: str) -> str | None:
        """Return the JSON of a finished stage, or None."""
        body: Any = self._database.value(
            "SELECT body FROM stages WHERE key = ? AND stage = ?", (key, stage)
        )
        return None if body is None else str(body)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

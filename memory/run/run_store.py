"""One run's database, `run.sqlite`: evaluations, stages, replay buffer, ledger, jobs, journal."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from pydantic import Field

from ...harness.records.evaluations import Evaluation
from ...harness.records.outcomes import Outcome
from ...harness.records.record import Record
from ..database import Database, Stored
from .claim_book import SCHEMA as CLAIMS_SCHEMA
from .claim_book import ClaimBook
from .job_book import SCHEMA as JOBS_SCHEMA
from .job_book import JobBook
from .journal import SCHEMA as JOURNAL_SCHEMA
from .journal import Journal
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
CREATE TABLE IF NOT EXISTS taken_over (key TEXT NOT NULL, stage TEXT NOT NULL,
    PRIMARY KEY (key, stage)
);
"""


KEPT_EVALUATIONS = 64
"""Records of those that were read last: agents ask for the same few at every step."""


class Verdict(Record):
    """An evaluation in short."""

    key: str
    source_sha256: str
    outcome: Outcome
    microseconds: float | None
    """None where it did not pass."""


class _Fastest(Record):
    source_sha256: str
    microseconds: float = Field(gt=0)


class RunStore:
    """Evaluations by key, stage results by (key, stage), `replay`, the replay buffer,
    `jobs`, what is asked of another host, `ledger`, what was spent, `journal`, what the graph's
    nodes came to, and `claims`, the inputs that reviewers had run.

    The first row under a key stays: what is finished is never evaluated twice. Safe to call from
    several threads; use as a context manager, or call `close`. Any method raises UserError when
    the disk is full or the file cannot be written.
    """

    def __init__(self, path: Path, *, copied: bool = False) -> None:
        """Open or create `run.sqlite` at `path`; or read a copy of it, and disturb nobody."""
        schemas = (
            SCHEMA, REPLAY_SCHEMA, JOBS_SCHEMA, LEDGER_SCHEMA, JOURNAL_SCHEMA, CLAIMS_SCHEMA
        )  # fmt: skip
        self._database = Database(path, "".join(schemas), copied=copied)
        self._evaluation = functools.lru_cache(KEPT_EVALUATIONS)(
            functools.partial(self._database.record, Evaluation)
        )
        self.replay = ReplayBuffer(self._database)
        self.jobs = JobBook(self._database)
        self.ledger = Ledger(self._database)
        self.journal = Journal(self._database)
        self.claims = ClaimBook(self._database)

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
        if body is None:
            return None
        return self._evaluation(body, f"evaluation {key[:12]}")

    def evaluations(self) -> Iterator[Evaluation]:
        """Yield every stored evaluation, in the order in which they were made."""
        for row in self._database.rows("SELECT key, body FROM evaluations ORDER BY rowid"):
            yield self._database.record(Evaluation, row["body"], f"evaluation {row['key'][:12]}")

    def verdicts(self) -> list[Verdict]:
        """Return all evaluations in short, in the order in which they were stored."""
        rows = self._database.rows(
            "SELECT key, source_sha256, outcome, microseconds FROM evaluations ORDER BY rowid"
        )
        return [self._database.record(Verdict, row, "an evaluation") for row in rows]

    def count(self) -> int:
        """Return how many evaluations are stored."""
        return int(self._database.value("SELECT COUNT(*) FROM evaluations"))

    def evaluated(self) -> set[str]:
        """Return the keys of all evaluations."""
        return {row["key"] for row in self._database.rows("SELECT key FROM evaluations")}

    def first_sources(self, number: int) -> set[str]:
        """Return the sha256 of the sources that were evaluated first, so many at most."""
        rows = self._database.rows(
            "SELECT source_sha256 FROM evaluations ORDER BY rowid LIMIT ?", (number,)
        )
        return {row["source_sha256"] for row in rows}

    def is_untouched(self) -> bool:
        """Say whether nothing was evaluated, asked of a model, or asked of another host yet."""
        tables = ("evaluations", "stages", "steps", "calls", "jobs")
        return not any(
            self._database.value(f"SELECT 1 FROM {table} LIMIT 1") for table in tables
        )

    def fastest(self) -> tuple[str, float] | None:
        """Return sha256 and microseconds of the fastest source that passed, or None."""
        rows = self._database.rows(
            "SELECT source_sha256, microseconds FROM evaluations WHERE outcome = 'passed' "
            "AND microseconds IS NOT NULL ORDER BY microseconds, source_sha256 LIMIT 1"
        )
        if not rows:
            return None
        found = self._database.record(_Fastest, rows[0], "the fastest evaluation")
        return found.source_sha256, found.microseconds

    def outcomes(self) -> dict[str, int]:
        """Return how many evaluations ended in each outcome, by outcome name."""
        rows = self._database.rows(
            "SELECT outcome, COUNT(*) AS n FROM evaluations GROUP BY outcome ORDER BY outcome"
        )
        return {row["outcome"]: row["n"] for row in rows}

    def put_stage(
        self, key: str, stage: str, body: str, *, taken_over: bool = False, charged: float = 0.0
    ) -> bool:
        """Store the JSON of a finished stage (compile, verify, profile); False if already there.

        Args:
            key: of the evaluation.
            stage: its name.
            body: what it said.
            taken_over: whether another run found it.
            charged: seconds of the device that this run is charged with for it.
        """
        with self._database.transaction():
            new = self._database.execute(
                "INSERT OR IGNORE INTO stages VALUES (?, ?, ?)", (key, stage, body)
            )
            if new and taken_over:
                self._database.execute("INSERT INTO taken_over VALUES (?, ?)", (key, stage))
            if new and charged:
                self.ledger.add_device_seconds(key, stage, charged)
        return bool(new)

    def count_taken_over(self) -> int:
        """Return how many evaluations rest on what other runs found alone."""
        return int(
            self._database.value(
                "SELECT COUNT(*) FROM evaluations WHERE key IN (SELECT key FROM taken_over) "
                "AND NOT EXISTS (SELECT 1 FROM stages WHERE stages.key = evaluations.key "
                "AND stage IN ('compile', 'verify', 'profile') AND NOT EXISTS ("
                "SELECT 1 FROM taken_over AS found WHERE found.key = stages.key "
                "AND found.stage = stages.stage))"
            )
        )

    def seconds_taken_over(self) -> float:
        """Return the seconds charged for what other runs found."""
        return float(
            self._database.value(
                "SELECT COALESCE(SUM(seconds), 0) FROM device_seconds AS spent WHERE EXISTS ("
                "SELECT 1 FROM taken_over AS found WHERE found.key = spent.key "
                "AND found.stage = spent.stage)"
            )
        )

    def get_stage(self, key: str, stage: str, kind: type[Stored]) -> Stored | None:
        """Return the result of a finished stage, or None."""
        body = self._database.value(
            "SELECT body FROM stages WHERE key = ? AND stage = ?", (key, stage)
        )
        if body is None:
            return None
        return self._database.record(kind, body, f"stage {stage} of {key[:12]}")

    def stages(self, key: str, beginning: str, kind: type[Stored]) -> list[Stored]:
        """Return the results of the finished stages whose names begin so, in order of name."""
        rows = self._database.rows(
            "SELECT stage, body FROM stages WHERE key = ? AND substr(stage, 1, ?) = ? "
            "ORDER BY stage",
            (key, len(beginning), beginning),
        )
        return [
            self._database.record(kind, row["body"], f"stage {row['stage']} of {key[:12]}")
            for row in rows
        ]

    def has_stage(self, key: str, stage: str) -> bool:
        """Say whether a stage is finished."""
        found = self._database.value(
            "SELECT 1 FROM stages WHERE key = ? AND stage = ?", (key, stage)
        )
        return found is not None

    def copy_to(self, path: Path) -> None:
        """Copy the whole store, as it is at this moment, to a new file."""
        self._database.copy_to(path)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

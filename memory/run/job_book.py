"""The jobs a run asked of another host, and who answered them, in the run's `run.sqlite`."""

from __future__ import annotations

from collections.abc import Sequence

from ...harness.devices.job_records import Job, JobResult, RunJobs, another_machine
from ...harness.errors import UserError
from ...harness.records.evaluations import DeviceIdentity
from ..database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY,
    run TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS measured_by (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    body TEXT NOT NULL
);
"""

_STAGES = {"evaluate": ("verify", "profile"), "confirm": ("confirm_verify", "confirm_profile")}
"""Under which names the Evaluator looks for the two halves of a job's result."""

_WAITING = """
    SELECT {} FROM jobs WHERE NOT EXISTS (
        SELECT 1 FROM stages WHERE stages.key = jobs.key AND stages.stage =
            CASE jobs.kind WHEN 'confirm' THEN 'confirm_verify' ELSE 'verify' END
    ) ORDER BY jobs.rowid
"""


class JobBook:
    """Jobs by id. A job waits until its results are stored as stages; it is never taken out."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ask(self, run: str, job: Job) -> None:
        """Note a job; asking again changes nothing."""
        self._database.execute(
            "INSERT OR IGNORE INTO jobs VALUES (?, ?, ?, ?, ?)",
            (job.id, run, job.kind, job.key, job.model_dump_json()),
        )

    def waiting(self) -> list[Job]:
        """Return the jobs without a result, in the order in which they were asked."""
        rows = self._database.rows(_WAITING.format("jobs.body"))
        return [self._database.record(Job, row["body"], "a job") for row in rows]

    def count_waiting(self) -> int:
        """Return how many jobs have no result."""
        return len(self._database.rows(_WAITING.format("jobs.id")))

    def get(self, identity: str) -> Job | None:
        """Return the job of an id, answered or not, or None."""
        body = self._database.value("SELECT body FROM jobs WHERE id = ?", (identity,))
        return None if body is None else self._database.record(Job, body, f"job {identity[:20]}")

    def run(self) -> str | None:
        """Return the id of the run that asks; None where it asked for nothing."""
        found = self._database.value("SELECT run FROM jobs LIMIT 1")
        return None if found is None else str(found)

    def measured_by(self) -> DeviceIdentity | None:
        """Return the device that gave the results so far; None before the first."""
        body = self._database.value("SELECT body FROM measured_by")
        if body is None:
            return None
        return self._database.record(DeviceIdentity, body, "the device of the results")

    def export(self) -> tuple[str | None, RunJobs, list[Job]]:
        """Return the run's id, what it waits for, and the jobs themselves."""
        jobs = self.waiting()
        asked = RunJobs(jobs=tuple(job.id for job in jobs), measured_by=self.measured_by())
        return self.run(), asked, jobs

    def answer(self, results: Sequence[JobResult]) -> int:
        """Store results, all or none; return how many were new. The first of a job stays.

        Raises:
            UserError: they come from another device than the run's earlier ones.
        """
        with self._database.transaction():
            return sum(self._answer(result) for result in results)

    def _answer(self, result: JobResult) -> bool:
        self._database.execute(
            "INSERT OR IGNORE INTO measured_by VALUES (1, ?)", (result.device.model_dump_json(),)
        )
        if stranger := another_machine(self.measured_by(), result.device):
            raise UserError(stranger)
        verify, profile = _STAGES[result.kind]
        insert = "INSERT OR IGNORE INTO stages VALUES (?, ?, ?)"
        if result.measured is not None:
            body = result.measured.model_dump_json()
            self._database.execute(insert, (result.key, profile, body))
        return bool(
            self._database.execute(
                insert, (result.key, verify, result.verified.model_dump_json())
            )
        )

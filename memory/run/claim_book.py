"""Inputs that reviewers of a run claimed its kernels to be wrong on, and what running them showed.

Those that showed a kernel wrong are cases of the task for the rest of the run.
"""

from __future__ import annotations

from ...harness.records.identity import sha256_of
from ...harness.records.record import Record
from ...harness.task.claims import ClaimedInput
from ..database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS claims (
    id TEXT PRIMARY KEY,
    confirmed INTEGER NOT NULL,
    body TEXT NOT NULL
);
"""


class TriedClaim(Record):
    """One claimed input that was run."""

    claim: ClaimedInput
    objection: str
    """What was said of the kernel, on one line."""
    quote: str
    """The line of the kernel that it rests on."""
    source_sha256: str
    """The kernel."""
    confirmed: bool
    """Whether the kernel was wrong there."""
    found: str
    """What running it showed."""
    author: str
    """Who claimed it."""
    place: tuple[int, int, int]
    """Iteration, rollout and step of the review; those of the winner's come after all."""

    @property
    def id(self) -> str:
        """Of the same claim on the same kernel."""
        return sha256_of(self.claim.id, self.source_sha256)


class ClaimBook:
    """Claims in the order in which they were run; the first of a kernel and an input stays."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, tried: TriedClaim) -> None:
        """Keep a claim that was run; keeping it again changes nothing."""
        self._database.execute(
            "INSERT OR IGNORE INTO claims VALUES (?, ?, ?)",
            (tried.id, int(tried.confirmed), tried.model_dump_json()),
        )

    def all(self) -> list[TriedClaim]:
        """Return all claims that were run."""
        rows = self._database.rows("SELECT body FROM claims ORDER BY rowid")
        return [self._database.record(TriedClaim, row["body"], "a claim") for row in rows]

    def cases(self) -> list[TriedClaim]:
        """Return the claims that are cases of the task now, each input once."""
        rows = self._database.rows("SELECT body FROM claims WHERE confirmed = 1 ORDER BY rowid")
        tried = [self._database.record(TriedClaim, row["body"], "a claim") for row in rows]
        return list({each.claim.id: each for each in reversed(tried)}.values())[::-1]

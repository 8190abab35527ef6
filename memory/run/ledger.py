"""What a run has spent: every paid model call, the device's time and the working time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from ...harness.records.record import Record
from ..database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS calls (
    key TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    role TEXT NOT NULL,
    place TEXT NOT NULL,
    model TEXT NOT NULL,
    prompt_sha256 TEXT NOT NULL,
    reply_sha256 TEXT,
    tokens_in INTEGER NOT NULL,
    tokens_cached INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    money REAL,
    seconds REAL NOT NULL,
    started REAL NOT NULL,
    finished REAL,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (key, attempt)
);
CREATE TABLE IF NOT EXISTS device_seconds (
    key TEXT NOT NULL,
    stage TEXT NOT NULL,
    seconds REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS search_end (
    reason TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS sittings (
    number INTEGER PRIMARY KEY,
    started REAL NOT NULL,
    seen REAL NOT NULL
);
"""

CallOutcome = Literal["open", "answered", "malformed", "failed", "maybe_paid", "reused"]
"""open: under way, or the process was killed. answered: the reply is stored. malformed: stored, but
not in the form asked for. failed: refused by the server, costs nothing. maybe_paid: no reply came,
the server may have computed one (time-out, dropped connection, kill). reused: nothing was sent, for
the same question had been answered in this run."""


class CallRow(Record):
    """One try of one call."""

    key: str
    """What makes it this call: role, place, number of the ask, model and prompt."""
    attempt: int
    """0 for the first try; 1.. after failures in transport."""
    role: str
    place: str
    model: str
    prompt_sha256: str
    reply_sha256: str | None
    tokens_in: int
    tokens_cached: int
    """Part of tokens_in that the server had in its cache."""
    tokens_out: int
    estimated: bool
    """The counts are characters / 4: the server gave none, or no reply came."""
    money: float | None
    """Dollars; None where the model has no price."""
    seconds: float
    started: float
    """Seconds since 1970."""
    finished: float | None
    outcome: CallOutcome
    reason: str


class Usage(Record):
    """What one call took."""

    tokens_in: int
    tokens_cached: int = 0
    tokens_out: int = 0
    estimated: bool = False
    money: float | None = None


class Totals(Record):
    """What all calls took together; refused ones took nothing."""

    calls: int
    """Answered, under way, or maybe paid."""
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    money: float | None
    """Dollars of the calls that have a price; None where none has."""
    unpriced: int
    """Calls without a price."""
    unfinished: int
    """Calls that may have been paid though no reply came, those under way included."""
    malformed: int
    failed: int
    seconds: float

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.tokens_in + self.tokens_out


class RoleTotals(Record):
    """What one model took in one role."""

    role: str
    model: str
    calls: int
    malformed: int
    failed: int
    reused: int
    """Questions that an earlier reply answered: nothing was sent."""
    unanswered: int
    """Calls that no try brought a reply to."""
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    money: float | None


_BY_ROLE = """
    SELECT role, model, SUM(outcome NOT IN ('failed', 'reused')) AS calls,
        SUM(outcome = 'malformed') AS malformed, SUM(outcome = 'failed') AS failed,
        SUM(outcome = 'reused') AS reused, COUNT(DISTINCT key) - COUNT(DISTINCT CASE
        WHEN reply_sha256 IS NOT NULL THEN key END) AS unanswered, SUM(tokens_in) AS tokens_in,
        SUM(tokens_cached) AS tokens_cached, SUM(tokens_out) AS tokens_out, SUM(money) AS money
    FROM calls GROUP BY role, model ORDER BY MIN(rowid)
"""
_TOTALS = """
    SELECT COALESCE(SUM(outcome NOT IN ('failed', 'reused')), 0) AS calls,
        COALESCE(SUM(tokens_in), 0) AS tokens_in,
        COALESCE(SUM(tokens_cached), 0) AS tokens_cached,
        COALESCE(SUM(tokens_out), 0) AS tokens_out,
        SUM(money) AS money,
        COALESCE(SUM(money IS NULL AND outcome NOT IN ('failed', 'reused')), 0) AS unpriced,
        COALESCE(SUM(outcome IN ('open', 'maybe_paid')), 0) AS unfinished,
        COALESCE(SUM(outcome = 'malformed'), 0) AS malformed,
        COALESCE(SUM(outcome = 'failed'), 0) AS failed,
        COALESCE(SUM(seconds), 0.0) AS seconds
    FROM calls
"""


class Ledger:
    """The run's spending in `run.sqlite`. A call is noted before it is sent and closed when its
    reply is stored, so that a process killed in between leaves a row that says so."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(
        self,
        *,
        key: str,
        role: str,
        place: str,
        model: str,
        prompt_sha256: str,
        expected: Usage,
        allow: Callable[[Totals], None],
    ) -> int:
        """Note a call that is about to be sent; return the number of the attempt.

        `allow` sees the totals inside the transaction and may raise: then nothing is noted. Until
        the call is closed, it counts with what is `expected` of it. An open row of the same key is
        one whose process was killed: it becomes maybe_paid.
        """
        with self._database.transaction():
            attempt = self._next_attempt(key)
            allow(self.totals())
            self._database.execute(
                "INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, NULL, ?, 0, ?, 1, ?, 0.0, ?, NULL, "
                "'open', '')",
                (
                    key, attempt, role, place, model, prompt_sha256,
                    expected.tokens_in, expected.tokens_out, expected.money, time.time(),
                ),
            )  # fmt: skip
        return attempt

    def answered(self, key: str, attempt: int, reply_sha256: str, usage: Usage) -> None:
        """Close a call whose raw reply is stored as an artifact."""
        self._close(key, attempt, "answered", "", usage, reply_sha256)

    def not_answered(self, key: str, attempt: int, reason: str, maybe_paid: bool) -> None:
        """Close a call without a reply; refused ones cost nothing."""
        if maybe_paid:
            self._database.execute(
                "UPDATE calls SET outcome = 'maybe_paid', reason = ?, finished = ?, "
                "seconds = ? - started WHERE key = ? AND attempt = ?",
                (reason, time.time(), time.time(), key, attempt),
            )
        else:
            self._close(key, attempt, "failed", reason, Usage(tokens_in=0), None)

    def malformed(self, key: str, reason: str) -> None:
        """Mark an answered call: its reply could not be used."""
        self._database.execute(
            "UPDATE calls SET outcome = 'malformed', reason = ? "
            "WHERE key = ? AND outcome IN ('answered', 'malformed')",
            (reason, key),
        )

    def reply(self, key: str) -> CallRow | None:
        """Return the answered row of a key, or None: then the call has to be made."""
        rows = self._database.rows(
            "SELECT * FROM calls WHERE key = ? AND reply_sha256 IS NOT NULL LIMIT 1", (key,)
        )
        return self._database.record(CallRow, rows[0], "a call") if rows else None

    def same_question(self, role: str, model: str, prompt_sha256: str) -> CallRow | None:
        """Return a row of the same role, model and prompt that has a reply, wherever it was asked.

        A malformed one counts: who reads it asks once more, and that question has an answer too.
        """
        rows = self._database.rows(
            "SELECT * FROM calls WHERE role = ? AND model = ? AND prompt_sha256 = ? "
            "AND outcome IN ('answered', 'malformed') LIMIT 1",
            (role, model, prompt_sha256),
        )
        return self._database.record(CallRow, rows[0], "a call") if rows else None

    def reused(self, key: str, place: str, answered: CallRow) -> None:
        """Note a call that was not sent, because an answered row holds the reply to it."""
        now = time.time()
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, NULL, 0.0, ?, ?, "
                "'reused', '')",
                (
                    key, self._next_attempt(key), answered.role, place, answered.model,
                    answered.prompt_sha256, answered.reply_sha256, now, now,
                ),
            )  # fmt: skip

    def rows(self) -> list[CallRow]:
        """Return every try of every call, in the order in which they were begun."""
        rows = self._database.rows("SELECT * FROM calls ORDER BY rowid")
        return [self._database.record(CallRow, row, "a call") for row in rows]

    def totals(self) -> Totals:
        """Return what the calls took so far."""
        return self._database.record(Totals, self._database.rows(_TOTALS)[0], "what calls took")

    def by_role(self) -> list[RoleTotals]:
        """Return what each model took in each role, in the order of their first calls."""
        rows = self._database.rows(_BY_ROLE)
        return [self._database.record(RoleTotals, row, "what calls took") for row in rows]

    def add_device_seconds(self, key: str, stage: str, seconds: float) -> None:
        """Note how long a stage of an evaluation held the device."""
        self._database.execute(
            "INSERT INTO device_seconds VALUES (?, ?, ?)", (key, stage, seconds)
        )

    def device_seconds(self) -> float:
        """Return how long candidates held the device so far."""
        return float(
            self._database.value("SELECT COALESCE(SUM(seconds), 0.0) FROM device_seconds")
        )

    def end_search(self, reason: str) -> None:
        """Note that the run looks for nothing more, and why; the first reason stays."""
        self._database.execute(
            "INSERT INTO search_end SELECT ? WHERE NOT EXISTS (SELECT * FROM search_end)",
            (reason,),
        )

    def search_ended(self) -> str:
        """Return why the run looks for nothing more; empty while it does."""
        return str(self._database.value("SELECT COALESCE(MAX(reason), '') FROM search_end"))

    def sit_down(self) -> None:
        """Note that work on the run begins, again or anew; the time between sittings is free."""
        now = time.time()
        self._database.execute("INSERT INTO sittings (started, seen) VALUES (?, ?)", (now, now))

    def still_working(self) -> None:
        """Note that the run is being worked on now.

        A run that nobody sat down to (a graph run by another program) begins its time here.
        """
        now = time.time()
        if not self._database.execute(
            "UPDATE sittings SET seen = MAX(seen, ?) WHERE number = "
            "(SELECT MAX(number) FROM sittings)",
            (now,),
        ):
            self.sit_down()

    def wall_seconds(self) -> float:
        """Return the working time so far, all sittings together."""
        return float(
            self._database.value("SELECT COALESCE(SUM(seen - started), 0.0) FROM sittings")
        )

    def _next_attempt(self, key: str) -> int:
        """Return the number of a call's next try; one whose process was killed is maybe paid."""
        self._database.execute(
            "UPDATE calls SET outcome = 'maybe_paid', reason = 'the process ended before the "
            "reply came' WHERE key = ? AND outcome = 'open'",
            (key,),
        )
        return int(self._database.value("SELECT COUNT(*) FROM calls WHERE key = ?", (key,)))

    def _close(
        self,
        key: str,
        attempt: int,
        outcome: CallOutcome,
        reason: str,
        usage: Usage,
        reply_sha256: str | None,
    ) -> None:
        now = time.time()
        self._database.execute(
            "UPDATE calls SET outcome = ?, reason = ?, reply_sha256 = ?, tokens_in = ?, "
            "tokens_cached = ?, tokens_out = ?, estimated = ?, money = ?, finished = ?, "
            "seconds = ? - started WHERE key = ? AND attempt = ?",
            (
                outcome, reason, reply_sha256, usage.tokens_in, usage.tokens_cached,
                usage.tokens_out, usage.estimated, usage.money, now, now, key, attempt,
            ),
        )  # fmt: skip

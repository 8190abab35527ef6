"""What the outer graph did in a run, node by node: by it a fork is told from a repetition.

It is enough to go on without the graph's checkpoints, which may lie in a server's database.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...harness.records.record import Record
from ..database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS journal (
    number INTEGER PRIMARY KEY,
    place TEXT NOT NULL,
    part INTEGER NOT NULL,
    node TEXT NOT NULL,
    read_sha256 TEXT NOT NULL,
    written TEXT NOT NULL,
    rows TEXT NOT NULL,
    UNIQUE (place, part)
);
CREATE TABLE IF NOT EXISTS forks (
    place TEXT NOT NULL,
    read_sha256 TEXT NOT NULL,
    directory TEXT NOT NULL,
    PRIMARY KEY (place, read_sha256)
);
"""
GROWING = ("evaluations", "stages", "steps", "calls", "device_seconds", "jobs", "claims")
"""Tables of the run store that only grow: what was there at an entry are their first rows."""


class Entry(Record):
    """One node's work that is done."""

    place: str
    """Which time it was: the node, the iteration, and what else tells two times apart."""
    part: int = 0
    """Of those that ran beside each other, which."""
    node: str
    read_sha256: str
    """Of what all parts of a place read."""
    written: dict[str, Any]
    """JSON of the node's update of the state."""


class Journal:
    """Entries in the order in which nodes ended; the first of a place and part stays."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read_at(self, place: str) -> str | None:
        """Return the sha256 of what a node that ended at a place had read; None: none did."""
        found = self._database.value(
            "SELECT read_sha256 FROM journal WHERE place = ? LIMIT 1", (place,)
        )
        return None if found is None else str(found)

    def written_at(self, place: str, part: int) -> dict[str, Any] | None:
        """Return what a node that ended at a place wrote, as JSON values; None: it has not."""
        rows = self._database.rows(
            "SELECT place, part, node, read_sha256, written FROM journal "
            "WHERE place = ? AND part = ?",
            (place, part),
        )
        return self._entry(rows[0]).written if rows else None

    def note(self, entry: Entry) -> None:
        """Note that a node has ended."""
        with self._database.transaction():
            rows = {
                table: self._database.value(f"SELECT COALESCE(MAX(rowid), 0) FROM {table}")
                for table in GROWING
            }
            self._database.execute(
                "INSERT OR IGNORE INTO journal (place, part, node, read_sha256, written, rows) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (entry.place, entry.part, entry.node, entry.read_sha256,
                 json.dumps(entry.written), json.dumps(rows)),
            )  # fmt: skip

    def entries(self) -> list[Entry]:
        """Return all entries in order."""
        found = self._database.rows(
            "SELECT place, part, node, read_sha256, written FROM journal ORDER BY number"
        )
        return [self._entry(row) for row in found]

    def rows_after(self) -> list[tuple[str, dict[str, int]]]:
        """Return each node that ended, and how many rows the growing tables had then, in order."""
        found = self._database.rows("SELECT node, rows FROM journal ORDER BY number")
        try:
            return [(row["node"], json.loads(row["rows"])) for row in found]
        except ValueError as error:
            raise self._database.damaged("the journal", str(error)) from error

    def _entry(self, row: dict[str, Any]) -> Entry:
        return self._database.record(Entry, row | _parsed(row), "an entry of the journal")

    def fork_of(self, place: str, read_sha256: str) -> Path | None:
        """Return the directory of the fork that begins with what a node reads at a place."""
        found = self._database.value(
            "SELECT directory FROM forks WHERE place = ? AND read_sha256 = ?", (place, read_sha256)
        )
        return None if found is None else Path(found)

    def note_fork(self, place: str, read_sha256: str, directory: Path) -> None:
        """Note where the run goes on that begins with what a node reads at a place."""
        self._database.execute(
            "INSERT OR REPLACE INTO forks VALUES (?, ?, ?)", (place, read_sha256, str(directory))
        )

    def forget_from(self, place: str) -> None:
        """Forget what was done at a place and after it, in all tables of the run."""
        number = self._database.value(
            "SELECT MIN(number) FROM journal WHERE place = ?", (place,)
        )
        before = self._database.value(
            "SELECT rows FROM journal WHERE number < ? ORDER BY number DESC LIMIT 1", (number,)
        )
        rows = json.loads(before) if before else dict.fromkeys(GROWING, 0)
        with self._database.transaction():
            for table in GROWING:
                # A journal of an earlier version does not count all of them.
                kept = rows.get(table, 0)
                self._database.execute(f"DELETE FROM {table} WHERE rowid > ?", (kept,))
            self._database.execute("DELETE FROM journal WHERE number >= ?", (number,))
            self._database.execute("DELETE FROM forks")


def _parsed(row: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"written": json.loads(row["written"])}
    except ValueError:
        return {}  # A text is no dictionary: the record says that it is damaged.


def latest(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the JSON of the state that nodes have written, the later over the earlier."""
    state: dict[str, Any] = {}
    for entry in entries:
        for key, value in entry.written.items():
            merged = isinstance(value, dict) and isinstance(state.get(key), dict)
            merges = merged and key in ("trajectories", "soft_reviews")
            state[key] = state[key] | value if merges else value
    return state

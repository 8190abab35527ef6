"""The append-only table that everything a knowledge base knows is derived from, and the sources."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ...harness.errors import UserError
from ..database import Database, Stored

SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (kind, id)
);
CREATE INDEX IF NOT EXISTS entries_by_kind ON entries (kind, sequence);
CREATE TABLE IF NOT EXISTS sources (sha256 TEXT PRIMARY KEY, text TEXT NOT NULL);
"""
ENTRIES_AT_ONCE = 2000
"""Entries that are held while a journal is read."""


class Entry(NamedTuple):
    """One row; `id` is a hash of the content, `body` its JSON, `sequence` 0 until stored."""

    kind: str
    id: str
    body: str
    sequence: int = 0


def _named(entry: Entry) -> str:
    return f"entry {entry.sequence} ({entry.kind})"


class Journal:
    """Entries in order of arrival, which are never changed or removed; and texts of sources that
    they name by their sha256, of which some are removed where there is no room for all.

    The sequence number is a snapshot's name: what is read `upto` it stays the same for ever,
    because sqlite commits writers one after another, in other processes too.
    """

    def __init__(self, path: Path, *, copied: bool = False) -> None:
        self.database = Database(path, SCHEMA, copied=copied)

    def append(self, entries: Iterable[Entry], sources: Mapping[str, str] | None = None) -> int:
        """Insert the entries in one transaction, ignoring known ids; return how many were new.

        Args:
            entries: to be inserted.
            sources: texts that come with them, by their sha256.
        """
        with self.database.transaction():
            for sha256, text in (sources or {}).items():
                insert = "INSERT OR IGNORE INTO sources VALUES (?, ?)"
                self.database.execute(insert, (sha256, text))
            return sum(
                self.database.execute(
                    "INSERT OR IGNORE INTO entries (kind, id, body) VALUES (?, ?, ?)",
                    (entry.kind, entry.id, entry.body),
                )
                for entry in entries
            )

    def append_closed(self, entries: Iterable[Entry], marker: Entry) -> int:
        """Insert entries and then their marker in one transaction; return the marker's sequence.

        Where the marker is known nothing is inserted, and the number it got then is returned:
        whoever repeats the call reads the same snapshot.
        """
        insert = "INSERT OR IGNORE INTO entries (kind, id, body) VALUES (?, ?, ?)"
        find = "SELECT sequence FROM entries WHERE kind = ? AND id = ?"
        with self.database.transaction():
            if self.database.value(find, (marker.kind, marker.id)) is None:
                for entry in (*entries, marker):
                    self.database.execute(insert, (entry.kind, entry.id, entry.body))
            return int(self.database.value(find, (marker.kind, marker.id)))

    def entries(
        self, after: int = 0, *, of: str | None = None, but: str | None = None
    ) -> Iterator[Entry]:
        """Give the entries that came after a sequence number, in order; never all are held.

        Args:
            after: the number.
            of: kind of those given; None for all.
            but: kind of those left out.
        """
        named = (("kind = ? AND ", of), ("kind != ? AND ", but))
        asked = [(text, kind) for text, kind in named if kind is not None]
        query = (
            f"SELECT kind, id, body, sequence FROM entries WHERE {''.join(t for t, _ in asked)}"
            f"sequence > ? ORDER BY sequence LIMIT {ENTRIES_AT_ONCE}"
        )
        kinds = [kind for _, kind in asked]
        while rows := self.database.rows(query, (*kinds, after)):
            for row in rows:
                yield Entry(row["kind"], row["id"], row["body"], row["sequence"])
            after = rows[-1]["sequence"]

    def read(self, kind: type[Stored], entry: Entry) -> Stored:
        """Return the record that an entry holds.

        Raises:
            UserError: it was damaged, or written by another version.
        """
        return self.database.record(kind, entry.body, _named(entry))

    def damaged(self, entry: Entry, why: str) -> UserError:
        """Return the error that says why a record cannot be what was stored."""
        return self.database.damaged(_named(entry), why)

    def sequence(self) -> int:
        """Return the highest sequence number, 0 when there is none."""
        return int(self.database.value("SELECT COALESCE(MAX(sequence), 0) FROM entries"))

    def count(self) -> int:
        """Return how many entries there are."""
        return int(self.database.value("SELECT COUNT(*) FROM entries"))

    def merge(self, other: Journal) -> int:
        """Take over the other's entries that are missing here, and sources; return how many entries
        those are."""
        return self.append(other.entries(), other.sources())

    def sources(self) -> dict[str, str]:
        """Return the texts of sources by their sha256."""
        rows = self.database.rows("SELECT sha256, text FROM sources ORDER BY sha256")
        return {row["sha256"]: row["text"] for row in rows}

    def source(self, sha256: str) -> str | None:
        """Return the text of a source; None where it is not kept, or is not what was stored."""
        find = "SELECT text FROM sources WHERE sha256 = ?"
        text = self.database.value(find, (sha256,))
        whole = isinstance(text, str) and hashlib.sha256(text.encode()).hexdigest() == sha256
        return text if whole else None

    def keep_sources(
        self, most: int, kind: str, chosen: Callable[[Iterable[Entry]], set[str]]
    ) -> int:
        """Remove sources where there are more than `most`; return how many were removed.

        Args:
            most: of them.
            kind: of the entries that name sources.
            chosen: of these entries, says which sources stay.
        """
        with self.database.transaction():
            held = {row["sha256"] for row in self.database.rows("SELECT sha256 FROM sources")}
            if len(held) <= most:
                return 0
            gone = held - chosen(each for each in self.entries() if each.kind == kind)
            for sha256 in gone:
                self.database.execute("DELETE FROM sources WHERE sha256 = ?", (sha256,))
        return len(gone)

    def close(self) -> None:
        """Close the file."""
        self.database.close()

"""Evidence: one row for each applied technique, success or failure, never changed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..records import Evidence
from .journal import Entry, Journal

KIND = "evidence"


class EvidenceStore:
    """The evidence in a journal, keyed by content: the same step written twice is one row."""

    def __init__(
        self, journal: Journal, reading: Callable[[Evidence], Evidence] = lambda row: row
    ) -> None:
        """Take the journal and, for rows in the words of an earlier version, how they are read."""
        self._journal = journal
        self._reading = reading

    def add(self, rows: Iterable[Evidence]) -> int:
        """Insert rows, ignoring those already there; return how many were new."""
        return self._journal.append(Entry(KIND, row.id, row.model_dump_json()) for row in rows)

    def rows(
        self, upto: int | None = None, device_kind: str | None = None
    ) -> list[tuple[str, Evidence]]:
        """Return (id, evidence) up to a sequence number, in order of id.

        The id is the stored row's, whatever words it is read in.
        Ordered by id, not by arrival, so that whatever is computed from the rows does not depend
        on which rollout, process or merge wrote first.
        """
        found = (
            (entry.id, self._reading(Evidence.model_validate_json(entry.body)))
            for entry in self._journal.entries(KIND, upto)
        )
        chosen = (row for row in found if device_kind in (None, row[1].device_kind))
        return sorted(chosen, key=lambda row: row[0])

    def count(self) -> int:
        """Return how many rows are stored."""
        return int(
            self._journal.database.value("SELECT COUNT(*) FROM entries WHERE kind = ?", (KIND,))
        )

    def merge(self, other: EvidenceStore) -> int:
        """Take over the other's rows (union by id); return how many were new."""
        return self._journal.append(other._journal.entries(KIND))

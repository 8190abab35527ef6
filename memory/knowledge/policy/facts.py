"""Evidence as it is stored, found by technique and state, as of any sequence."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from ...records.conditions import Condition
from ...records.evidence import Evidence
from ..states.conditions import evidence_facts


def comparable(first_kind: str, second_kind: str) -> bool:
    """Say whether evidence of two device kinds may be pooled: both simulated, or both measured."""
    return (first_kind == "simulated") == (second_kind == "simulated")


class Told(NamedTuple):
    """One row of evidence as it is stored."""

    sequence: int
    id: str
    row: Evidence


class Facts:
    """All evidence, only ever added to, in order of sequence; everything is read up to a number.

    Rows of devices that are not comparable are kept apart: `simulated` says which are meant.
    """

    def __init__(self) -> None:
        self._told: list[Told] = []
        self._rows: dict[str, Evidence] = {}
        self._tries: dict[tuple[bool, str], list[Told]] = {}
        self._in_state: dict[str, list[Told]] = {}
        self._holding: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
        """By state and condition, how many of its rows were asked, and numbers of those of which
        the condition holds."""
        self._first_in_state: dict[tuple[bool, str], dict[str, int]] = {}

    def add(self, sequence: int, identity: str, row: Evidence) -> None:
        """Take the next row; sequences rise."""
        told = Told(sequence, identity, row)
        simulated = row.device_kind == "simulated"
        self._told.append(told)
        self._rows[identity] = row
        self._tries.setdefault((simulated, row.technique), []).append(told)
        self._in_state.setdefault(row.state_before, []).append(told)
        self._first_in_state.setdefault((simulated, row.state_before), {}).setdefault(
            row.technique, sequence
        )

    def told(self, at: int) -> list[Told]:
        """Return every row, in order of arrival."""
        return self._told[: _until(self._told, at)]

    def row(self, identity: str) -> Evidence | None:
        """Return the row of an id; None where it is not here (yet)."""
        return self._rows.get(identity)

    def tries(self, technique: str, simulated: bool, at: int) -> list[Told]:
        """Return every row of a technique, in order of arrival."""
        found = self._tries.get((simulated, technique), [])
        return found[: _until(found, at)]

    def count(self, technique: str, simulated: bool, at: int) -> int:
        """Return how many rows a technique has: while it stays, what they say stays."""
        return _until(self._tries.get((simulated, technique), []), at)

    def count_in_state(self, state_id: str, at: int) -> int:
        """Return how many rows began in a state, of all devices."""
        return _until(self._in_state.get(state_id, []), at)

    def count_where(self, state_id: str, condition: Condition, at: int) -> int:
        """Return how many rows that began in a state a condition holds of; each is asked once."""
        rows = self._in_state.get(state_id, [])
        asked, holding = self._holding.setdefault((state_id, str(condition)), ([0], []))
        for told in rows[asked[0] :]:
            if condition.holds(evidence_facts(told.row)):
                holding.append(told.sequence)
        asked[0] = len(rows)
        return bisect_right(holding, at)

    def tried_in_state(self, state_id: str, simulated: bool, at: int) -> list[str]:
        """Return the techniques that were tried in a state, in alphabetical order."""
        first = self._first_in_state.get((simulated, state_id), {})
        return sorted(technique for technique, sequence in first.items() if sequence <= at)


def _until(told: list[Told], at: int) -> int:
    return bisect_right(told, at, key=lambda each: each.sequence)

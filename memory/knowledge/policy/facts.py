"""Evidence as it is stored, found by technique and state, as of any sequence."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
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
        self._by_id: dict[str, Told] = {}
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
        self._by_id[identity] = told
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
        told = self._by_id.get(identity)
        return told and told.row

    def told_as(self, identity: str) -> Told | None:
        """Return the row of an id as it is stored; None where it is not here (yet)."""
        return self._by_id.get(identity)

    def tries(self, technique: str, simulated: bool, at: int) -> list[Told]:
        """Return every row of a technique, in order of arrival."""
        found = self._tries.get((simulated, technique), [])
        return found[: _until(found, at)]

    def in_state(self, state_id: str, at: int) -> list[Told]:
        """Return every row that began in a state, in order of arrival."""
        found = self._in_state.get(state_id, [])
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


class Rows(Mapping[str, Evidence]):
    """Rows by id: all up to a number, and some that came later. Those of a technique or of a state
    are found without the others being read."""

    def __init__(self, facts: Facts, at: int, later: Iterable[str] = ()) -> None:
        """Take all up to `at`, and of what came later the rows of these ids, where they are."""
        self._facts, self._at = facts, at
        known = map(facts.told_as, dict.fromkeys(later))
        self._later = sorted(
            (told for told in known if told is not None and told.sequence > at),
            key=lambda told: told.sequence,
        )
        self._numbers = {told.sequence for told in self._later}

    @classmethod
    def of_all(cls, rows: Mapping[str, Evidence]) -> Rows:
        """Return rows that are in no journal."""
        facts = Facts()
        for number, (identity, row) in enumerate(rows.items(), 1):
            facts.add(number, identity, row)
        return cls(facts, len(rows))

    def __getitem__(self, identity: str) -> Evidence:
        told = self._facts.told_as(identity)
        if told is None or (told.sequence > self._at and told.sequence not in self._numbers):
            raise KeyError(identity)
        return told.row

    def __iter__(self) -> Iterator[str]:
        return (told.id for told in (*self._facts.told(self._at), *self._later))

    def __len__(self) -> int:
        return len(self._facts.told(self._at)) + len(self._later)

    def of(self, technique: str, device_kind: str) -> dict[str, Evidence]:
        """Return those of a technique on comparable devices, by id in order of arrival."""
        rows = self._facts.tries(technique, device_kind == "simulated", self._at)
        later = (each for each in self._later if each.row.technique == technique)
        return _comparable((*rows, *later), device_kind)

    def began_in(self, states: Iterable[str], device_kind: str) -> dict[str, Evidence]:
        """Return those that were told to begin in one of these states, on comparable devices."""
        found: list[Told] = []
        for name in dict.fromkeys(states):
            found += self._facts.in_state(name, self._at)
            found += (each for each in self._later if each.row.state_before == name)
        return _comparable(sorted(found, key=lambda each: each.sequence), device_kind)


def _comparable(told: Iterable[Told], device_kind: str) -> dict[str, Evidence]:
    return {each.id: each.row for each in told if comparable(each.row.device_kind, device_kind)}


def _until(told: list[Told], at: int) -> int:
    return bisect_right(told, at, key=lambda each: each.sequence)

"""Evidence as facts: repeats told once, found by technique, task and state, as of any sequence."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from ..records import Evidence

Home = tuple[str, str, bool]
"""A task on a GPU, simulated or not: gains elsewhere say nothing of what can follow here."""


def comparable(first_kind: str, second_kind: str) -> bool:
    """Say whether evidence of two device kinds may be pooled: both simulated, or both measured."""
    return (first_kind == "simulated") == (second_kind == "simulated")


class Told(NamedTuple):
    """One row of evidence as it is stored."""

    sequence: int
    id: str
    row: Evidence


class Fact:
    """Rows that say the same: the same rewrite of the same source with the same result."""

    def __init__(self, first: Told) -> None:
        self.told = [first]
        self._alike = True
        self._firsts: list[Told] = []
        """Of each repeat, the first by content among those told until then."""

    def add(self, told: Told) -> None:
        """Take a repeat."""
        self._alike = self._alike and _weighed(told.row) == _weighed(self.told[0].row)
        self.told.append(told)

    def row(self, at: int) -> Evidence:
        """Return the row that stands for all up to `at`: the first by content, not by arrival.

        A run's name decides nothing.
        """
        if self._alike:
            return self.told[0].row
        firsts = list(self._firsts)
        for told in self.told[len(firsts) :]:
            least = firsts[-1] if firsts else told
            firsts.append(min(least, told, key=lambda each: each.row.fact_id))
        self._firsts = firsts
        return firsts[_until(self.told, at) - 1].row

    def is_among(self, ids: frozenset[str], at: int) -> bool:
        """Say whether one of its rows up to `at` has one of the ids."""
        return any(told.id in ids and told.sequence <= at for told in self.told)


class Facts:
    """All evidence, only ever added to, in order of sequence; everything is read up to a number.

    Rows of devices that are not comparable are kept apart: `simulated` says which are meant.
    """

    def __init__(self) -> None:
        self._told: list[Told] = []
        self._by_content: dict[tuple[object, ...], Fact] = {}
        self._tries: dict[tuple[bool, str], list[Told]] = {}
        self._of_technique: dict[tuple[bool, str], list[Fact]] = {}
        self._at_home: dict[Home, list[Fact]] = {}
        self._arrived_home: dict[Home, list[int]] = {}
        self._in_state: dict[str, list[int]] = {}
        self._first_in_state: dict[tuple[bool, str], dict[str, int]] = {}

    def add(self, sequence: int, identity: str, row: Evidence) -> None:
        """Take the next row; sequences rise."""
        told = Told(sequence, identity, row)
        simulated = row.device_kind == "simulated"
        technique = simulated, row.technique
        self._told.append(told)
        self._tries.setdefault(technique, []).append(told)
        self._arrived_home.setdefault(home(row), []).append(sequence)
        self._in_state.setdefault(row.state_before, []).append(sequence)
        self._first_in_state.setdefault((simulated, row.state_before), {}).setdefault(
            row.technique, sequence
        )
        # Without a parent nobody can say what was rewritten: each such row is a fact of its own.
        key = _content(row) if row.parent_sha256 else (sequence,)
        known = self._by_content.get(key)
        if known is not None:
            known.add(told)
            return
        fact = self._by_content[key] = Fact(told)
        self._of_technique.setdefault(technique, []).append(fact)
        self._at_home.setdefault(home(row), []).append(fact)

    def told(self, at: int) -> list[Told]:
        """Return every row, in order of arrival."""
        return self._told[: _until(self._told, at)]

    def tries(self, technique: str, simulated: bool, at: int) -> list[Told]:
        """Return every row of a technique, in order of arrival."""
        found = self._tries.get((simulated, technique), [])
        return found[: _until(found, at)]

    def count(self, technique: str, simulated: bool, at: int) -> int:
        """Return how many rows a technique has: while it stays, what they say stays."""
        return _until(self._tries.get((simulated, technique), []), at)

    def of_technique(self, technique: str, simulated: bool, at: int) -> list[Fact]:
        """Return the facts about a technique."""
        return _born(self._of_technique.get((simulated, technique), []), at)

    def at_home(self, where: Home, at: int) -> list[Fact]:
        """Return the facts about a task on a GPU."""
        return _born(self._at_home.get(where, []), at)

    def count_at_home(self, where: Home, at: int) -> int:
        """Return how many rows a task has on a GPU: while it stays, what they say stays."""
        return bisect_right(self._arrived_home.get(where, []), at)

    def count_in_state(self, state_id: str, at: int) -> int:
        """Return how many rows began in a state, of all devices."""
        return bisect_right(self._in_state.get(state_id, []), at)

    def tried_in_state(self, state_id: str, simulated: bool, at: int) -> list[str]:
        """Return the techniques that were tried in a state."""
        first = self._first_in_state.get((simulated, state_id), {})
        return [technique for technique, sequence in first.items() if sequence <= at]


def home(row: Evidence) -> Home:
    """Return where a row was measured, and on what."""
    return row.task_id, row.gpu, row.device_kind == "simulated"


def _until(told: list[Told], at: int) -> int:
    return bisect_right(told, at, key=lambda each: each.sequence)


def _born(facts: list[Fact], at: int) -> list[Fact]:
    return facts[: bisect_right(facts, at, key=lambda fact: fact.told[0].sequence)]


def _content(row: Evidence) -> tuple[object, ...]:
    gain = None if row.log_gain is None else round(row.log_gain, 6)
    return (
        row.task_id,
        row.parent_sha256,
        row.child_sha256,
        row.technique,
        row.state_before,
        row.previous_technique,
        str(sorted(row.parameters.items())),
        row.outcome,
        gain,
        row.gpu,
        row.device_kind,
        row.harness,
    )


def _weighed(row: Evidence) -> tuple[object, ...]:
    """Return what rows of equal content may still differ in, where it bears on an expected gain."""
    return (
        row.log_gain,
        row.standard_error,
        row.op_class,
        row.dtype,
        row.arch,
        row.family,
        row.signature_before,
        tuple(row.parameters),
    )

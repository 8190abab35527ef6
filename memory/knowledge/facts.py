"""Which rows of evidence are facts of their own, and which devices' facts may be pooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..records import Evidence

Rows = Sequence[tuple[str, Evidence]]
"""Evidence with the ids under which it is stored."""


@dataclass(frozen=True)
class Fact:
    """A row of evidence with the ids of all rows that say the same."""

    row: Evidence
    ids: frozenset[str]


def comparable(first_kind: str, second_kind: str) -> bool:
    """Say whether evidence of two device kinds may be pooled: both simulated, or both measured."""
    return (first_kind == "simulated") == (second_kind == "simulated")


def distinct(rows: Rows) -> list[Fact]:
    """Join repeats: the same rewrite of the same source with the same result is no new fact.

    In an order that depends on content alone, and of repeats the first in that order stands for
    all: a run's name decides nothing.
    """
    groups: dict[tuple[object, ...], tuple[Evidence, list[str]]] = {}
    for number, (identity, row) in enumerate(sorted(rows, key=lambda pair: pair[1].fact_id)):
        key = _fact(row) if row.parent_sha256 else (number,)
        groups.setdefault(key, (row, []))[1].append(identity)
    return [Fact(row, frozenset(ids)) for row, ids in groups.values()]


def _fact(row: Evidence) -> tuple[object, ...]:
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

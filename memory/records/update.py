"""All that one parameter update changes in a knowledge base."""

from __future__ import annotations

from ...harness.records.identity import sha256_of_json
from ...harness.records.record import Record
from .edits import Edit, Revert
from .identity import as_first_stored
from .lessons import Lesson, Withdrawal
from .optimizations import StateOptimization
from .states import PerformanceState


class KnowledgeUpdate(Record):
    """All that one parameter update changes: applied whole or not at all, and only once."""

    run: str
    iteration: int
    states: tuple[PerformanceState, ...] = ()
    optimizations: tuple[StateOptimization, ...] = ()
    lessons: tuple[Lesson, ...] = ()
    withdrawals: tuple[Withdrawal, ...] = ()
    edits: tuple[Edit, ...] = ()
    reverts: tuple[Revert, ...] = ()

    @property
    def id(self) -> str:
        """Identity: its content."""
        return sha256_of_json(["update", as_first_stored(self)])

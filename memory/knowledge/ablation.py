"""Knowledge bases as ablations have them: read in part or in another way, and never written."""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from ...harness.records.identity import sha256_of
from ..records.ablation import Ablation
from ..records.evidence import Evidence, Overturned
from ..records.lessons import Lesson
from ..records.states import PerformanceState
from ..records.update import KnowledgeUpdate
from .directory import prepare
from .kernels import KnownKernel, TaskSeen
from .knowledge_base import KnowledgeBase
from .policy.actions import Tried
from .policy.expectation import Expectations, Outlook
from .seed import Seed
from .snapshots.snapshot import Snapshot


def open_under(ablation: Ablation, directory: Path, seed: Seed) -> KnowledgeBase:
    """Open a knowledge base, which is there, as a run under an ablation has it.

    Raises:
        UserError: as `KnowledgeBase.open`.
    """
    if ablation.memory == "live":
        return KnowledgeBase.open(directory, seed, create=False)
    prepare(directory, create=False)
    if ablation.memory == "frozen":
        return ReadAlone(directory, seed)
    if ablation.memory == "shuffled":
        return Shuffled(directory, seed, ablation.seed)
    if ablation.memory == "off":
        seed = replace(seed, states=(), optimizations={})
    return BeforeTheFirst(directory, seed)


class ReadAlone(KnowledgeBase):
    """A knowledge base that is read: what a run would add to it is dropped.

    The Chroma index in its directory is left to others too, and a directory that cannot be written
    to will do.
    """

    def __init__(
        self, directory: Path, seed: Seed, expectations: Expectations | None = None
    ) -> None:
        """Take a prepared directory."""
        super().__init__(
            directory, seed, with_index=False, expectations=expectations,
            copied=not os.access(directory, os.W_OK),
        )  # fmt: skip

    def add_evidence(self, rows: Iterable[Evidence]) -> int:
        """Add nothing."""
        return 0

    def overturn(self, rows: Iterable[Overturned]) -> int:
        """Change nothing."""
        return 0

    def add_state(self, state: PerformanceState) -> bool:
        """Add nothing."""
        return False

    def see_task(self, task: TaskSeen) -> bool:
        """Add nothing."""
        return False

    def keep_kernel(self, task: TaskSeen, kernel: KnownKernel, source: str) -> bool:
        """Keep nothing."""
        return False

    def apply_update(self, update: KnowledgeUpdate) -> int:
        """Change nothing; return the number of the newest entry."""
        return self.sequence()

    def merge(self, other: KnowledgeBase) -> int:
        """Take over nothing."""
        return 0


class BeforeTheFirst(ReadAlone):
    """A knowledge base as it was before its first entry: the seed, whatever came since."""

    def sequence(self) -> int:
        """Return the number of nothing."""
        return 0

    def snapshot(self, at: int | None = None) -> Snapshot:
        """Return the seed alone."""
        return super().snapshot(0)


class Shuffled(ReadAlone):
    """A knowledge base whose experience says nothing of what it was made with: each try has the
    outcome of another, and each state is told of as another, with what to try in it, what not, and
    lessons. What a memory gives that only looks like one.

    The states stand in a ring, in an order that a number fixes; each has what is known of the next.
    """

    def __init__(self, directory: Path, seed: Seed, number: int) -> None:
        """Take a prepared directory; another number is another order."""
        super().__init__(directory, seed, Dealt(number))
        self._number = number

    def lessons(
        self, at: int | None = None, technique: str | None = None, state: str | None = None
    ) -> list[Lesson]:
        """Return lessons, each as one on the state that is told of as its own."""
        with self._guard:
            snapshot = self.snapshot(at)
            told_as = {self._next(each, snapshot).id: each.id for each in snapshot.states()}
            found = [
                lesson.model_copy(update={"state": told_as.get(lesson.state, lesson.state)})
                if lesson.state
                else lesson
                for lesson in snapshot.lessons(technique)
            ]
        return [lesson for lesson in found if state in (None, lesson.state)]

    def _known(self, state: PerformanceState | str, snapshot: Snapshot) -> PerformanceState:
        return self._next(super()._known(state, snapshot), snapshot)

    def _next(self, state: PerformanceState, snapshot: Snapshot) -> PerformanceState:
        """Return the known state after one, which may be a new one, in the ring."""
        others = [each for each in snapshot.states() if each.id != state.id]
        after = [each for each in others if self._place(each) > self._place(state)]
        return min(after or others, key=self._place, default=state)

    def _place(self, state: PerformanceState) -> str:
        return sha256_of(str(self._number), state.id)


class Dealt(Expectations):
    """Expectations in which each try has the outcome of another on the same kind of device."""

    def __init__(self, number: int) -> None:
        """Take the number that fixes how outcomes are dealt."""
        super().__init__()
        self._number = number
        self._rows: dict[str, tuple[int, Tried]] = {}
        self._dealt: tuple[int, Expectations] = -1, Expectations()

    def add(self, tried: Tried, sequence: int | None = None, name: str = "") -> None:
        """Keep what came of an action, until somebody asks."""
        number = len(self._rows) + 1 if sequence is None else sequence
        self._rows[name or str(number)] = number, tried

    def overturn(self, name: str, tried: Tried, sequence: int) -> None:
        """Keep that a try failed after all."""
        self.add(tried._replace(log_gain=None), self._rows[name][0], name)

    def at(self, sequence: int, own: Collection[str] = ()) -> Outlook:
        """Return what tries up to a number say when their outcomes are dealt anew."""
        if self._dealt[0] != sequence:
            known = [each for each in self._rows.values() if each[0] <= sequence]
            dealt = Expectations()
            for simulated in (True, False):
                rows = [each for each in known if each[1].situation.simulated is simulated]
                outcomes = [(each.log_gain, each.standard_error) for _, each in rows]
                random.Random(f"{self._number} {simulated}").shuffle(outcomes)
                for (number, tried), (gain, error) in zip(rows, outcomes, strict=True):
                    dealt.add(tried._replace(log_gain=gain, standard_error=error), number)
            self._dealt = sequence, dealt
        return self._dealt[1].at(sequence)

"""Knowledge bases as ablations have them: read in part or in another way, and never written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ...harness.records import sha256_of
from ..records import Ablation, Evidence, KnowledgeUpdate, Lesson, PerformanceState
from .directory import prepare
from .kernels import KnownKernel, TaskSeen
from .knowledge_base import KnowledgeBase
from .seed import Seed
from .snapshot import Snapshot


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

    The Chroma index in its directory is left to others too.
    """

    def __init__(self, directory: Path, seed: Seed) -> None:
        """Take a prepared directory."""
        super().__init__(directory, seed, with_index=False)

    def add_evidence(self, rows: Iterable[Evidence]) -> int:
        """Add nothing."""
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
    """A knowledge base in which each state is told of as another: expectations, what to try, what
    not, parameter settings and lessons. What a memory gives that knows nothing of states.

    The states stand in a ring, in an order that a number fixes; each has what is known of the next.
    """

    def __init__(self, directory: Path, seed: Seed, number: int) -> None:
        """Take a prepared directory; another number is another order."""
        super().__init__(directory, seed)
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

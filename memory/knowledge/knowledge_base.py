"""The persistent CUDA knowledge base: states, what to try in them, what experience says of it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ...harness.errors import UserError
from ...harness.records.profiles import Bottleneck
from ..records.evidence import Evidence, Overturned
from ..records.lessons import Lesson
from ..records.optimizations import Optimization
from ..records.policy import PolicyContext
from ..records.states import PerformanceState, Signature
from ..records.update import KnowledgeUpdate
from .directory import EVIDENCE_FILE, Lock, prepare
from .entries import entries_of, state_entry, task_entry
from .journal import Entry, Journal
from .kernels import (
    LARGEST_SOURCE,
    MOST_SOURCES,
    Found,
    KnownKernel,
    TaskSeen,
    Tried,
    tried_on,
    worth_keeping,
)
from .overview import counts, shown, told
from .policy.actions import Forecast, Question
from .policy.expectation import Expectations
from .policy.policy import Prospect, unknown_technique
from .retrieval.text_index import KINDS, IndexedText, Kind, TextIndex, closest, nearest_texts
from .seed import Seed
from .snapshots.contents import (
    EVIDENCE,
    KERNEL,
    OVERTURNED,
    Contents,
)
from .snapshots.snapshot import Snapshot
from .states.conditions import KernelFacts
from .states.matching import Near, best, discover

KEPT_SNAPSHOTS = 4


class KnowledgeBase:
    """A directory `kb.json`, `evidence.sqlite` (the truth) and `chroma/` (an index of it).

    Everything read takes `at`, a sequence number (None: now): what is read at a number stays the
    same whatever is written later. Any number of processes may read and write one directory. The
    first to open it owns the Chroma index; the others find the nearest state by computing every
    distance, which gives the same answer. Methods are synchronous and safe under threads.
    """

    @classmethod
    def open(cls, directory: Path, seed: Seed, create: bool = True) -> Self:
        """Open a knowledge base, making it where the directory is missing or empty.

        Args:
            directory: where it is.
            seed: what it starts from, also where it was made from another: it is not stored.
            create: whether it may be made.

        Raises:
            UserError: the directory belongs to another program or version, holds other files, is
                not writable, or (without `create`) does not exist. Nothing is changed then.
        """
        prepare(directory, create=create)
        return cls(directory, seed)

    def __init__(
        self,
        directory: Path,
        seed: Seed,
        *,
        with_index: bool = True,
        expectations: Expectations | None = None,
        copied: bool = False,
    ) -> None:
        """Take a prepared directory; use `open`.

        Args:
            directory: where it is.
            seed: what it starts from.
            with_index: whether to own the Chroma index where nobody else does.
            expectations: what learns from evidence, where it is not the usual.
            copied: work on a copy in memory, as it is at this moment: see `Database`.
        """
        self.directory = directory
        self._journal = Journal(directory / EVIDENCE_FILE, copied=copied)
        self._seed = seed
        self._texts = TextIndex(directory / "chroma" / "texts")
        self._lock = Lock(directory / "index.lock") if with_index else None
        self._guard = threading.RLock()
        self._contents = Contents(self._journal, self._seed, expectations)
        self._snapshots: dict[int, Snapshot] = {}

    # What is known

    def sequence(self) -> int:
        """Return the number of the newest entry: the name of a snapshot."""
        return self._journal.sequence()

    def seed(self) -> Seed:
        """Return the seed: states, priors, and every technique's description."""
        return self._seed

    @property
    def journal(self) -> Journal:
        """What all of it is derived from: for those who copy it."""
        return self._journal

    @property
    def owns_index(self) -> bool:
        """Whether this object, and no other process, uses the Chroma index."""
        return self._lock is not None and self._lock.held

    def snapshot(self, at: int | None = None) -> Snapshot:
        """Return all that was known at a sequence number; the last few are kept.

        What was read once is not read again; of the newest number, what came since is added.
        """
        with self._guard:
            if at is None or at > self._contents.sequence:
                self._contents.read()
            newest = self._contents.sequence
            number = newest if at is None else min(at, newest)
            found = self._snapshots.pop(number, None)
            if found is None:
                nearest = min(self._snapshots, key=lambda kept: abs(kept - number), default=None)
                before = None if nearest is None else self._snapshots[nearest]
                found = Snapshot(self._contents, number, before)
                while len(self._snapshots) >= KEPT_SNAPSHOTS:
                    del self._snapshots[next(iter(self._snapshots))]
            self._snapshots[number] = found  # The last asked for stands last.
            return found

    def states(self, at: int | None = None) -> list[PerformanceState]:
        """Return the seed's states, then the discovered ones in order of arrival."""
        return self.snapshot(at).states()

    def state(self, state_id: str, at: int | None = None) -> PerformanceState | None:
        """Return one state, or None where it is not (yet) known."""
        return self.snapshot(at).state(state_id)

    def near_states(
        self,
        signature: Signature,
        primary: Bottleneck,
        secondary: Bottleneck | None = None,
        at: int | None = None,
        found: Iterable[PerformanceState] = (),
        facts: KernelFacts | None = None,
    ) -> list[Near]:
        """Return the states nearest to a kernel, the nearest first, with how much it is in each.

        Args:
            signature: of the kernel.
            primary: what holds it back first.
            secondary: what comes next.
            at: sequence number up to which the knowledge base is read.
            found: states discovered since that count as known.
            facts: what is known of the kernel besides (`circumstance_facts`): in which part of a
                state it is.
        """
        with self._guard:
            return self.snapshot(at).near(signature, primary, secondary, found, facts)

    def match_state(
        self,
        signature: Signature,
        primary: Bottleneck,
        secondary: Bottleneck | None = None,
        at: int | None = None,
        found: Iterable[PerformanceState] = (),
        facts: KernelFacts | None = None,
    ) -> tuple[PerformanceState, float, bool]:
        """Return the state a kernel is in, its distance, and whether it is a new one.

        The nearest state within whose reach it lies. Otherwise a new state made from the signature,
        with the distance to the nearest known one; it is not stored: put it into a
        `KnowledgeUpdate`. Arguments as of `near_states`.
        """
        near = self.near_states(signature, primary, secondary, at, found, facts)
        known = best(near)
        if known is not None:
            return known.state, known.away, False
        new = discover(signature, primary, secondary)
        same = next((each for each in near if each.state.id == new.id), None)
        if same is not None:
            return same.state, same.away, False
        return new, near[0].away if near else 1.0, True

    def offered(
        self, state: PerformanceState | str, context: PolicyContext, at: int | None = None
    ) -> list[Optimization]:
        """Return the techniques that `candidates` asks about, as they are listed in a state.

        The state may be a new one that `match_state` made. Left out: what `context.tried` names,
        and what an uncontested lesson deprecates in this state.

        Raises:
            UserError: the id names no state.
        """
        with self._guard:
            snapshot, known, excluded = self._open_to(state, context, at)
            return snapshot.policy(context.device_kind).offered(known, context, excluded)

    def candidates(
        self,
        state: PerformanceState | str,
        context: PolicyContext,
        at: int | None = None,
        only: Collection[str] | None = None,
    ) -> list[Prospect]:
        """Return what could be tried in a state, highest score first.

        What is `offered`, or of that `only` what it names; less what was refused.

        Raises:
            UserError: the id names no state.
        """
        with self._guard:
            snapshot, known, excluded = self._open_to(state, context, at)
            policy = snapshot.policy(context.device_kind)
            return policy.candidates(known, context, excluded, only)

    def deprecated(
        self, state: PerformanceState | str, context: PolicyContext, at: int | None = None
    ) -> frozenset[str]:
        """Return the techniques that `candidates` leaves out because a lesson deprecates them.

        Raises:
            UserError: the id names no state.
        """
        with self._guard:
            snapshot = self.snapshot(at)
            known = self._known(state, snapshot)
            return snapshot.deprecated(known.id, context.device_kind, context.op_class)

    def withheld(
        self,
        state: PerformanceState | str,
        facts: KernelFacts,
        context: PolicyContext,
        at: int | None = None,
    ) -> dict[str, str]:
        """Return the techniques that are not to be tried on a kernel, and why: a condition of
        theirs does not hold, or an edit deprecates them in its class of operation.

        Raises:
            UserError: the id names no state.
        """
        with self._guard:
            snapshot = self.snapshot(at)
            known = self._known(state, snapshot)
            return snapshot.withheld(known.id, facts, context.device_kind)

    def beliefs(
        self,
        state: PerformanceState | str,
        techniques: Iterable[str | Optimization],
        context: PolicyContext,
        at: int | None = None,
    ) -> list[Prospect]:
        """Return what to expect of techniques in a state, in the order given.

        Nothing is left out: techniques already tried, deprecated (`deprecated` names them), or
        unheard of are answered too. Unheard of means with a neutral prior for a name, with its own
        for an Optimization.

        Raises:
            UserError: the id names no state.
        """
        with self._guard:
            snapshot = self._asked_of(context, at)
            kind = context.device_kind
            named = [
                item
                if isinstance(item, Optimization)
                else snapshot.card(item, kind) or unknown_technique(item)
                for item in techniques
            ]
            policy = snapshot.policy(kind)
            return policy.beliefs(self._known(state, snapshot), named, context)

    def forecast(
        self,
        state: PerformanceState | str,
        optimization: Optimization,
        launch: str,
        setting: Mapping[str, Any],
        context: PolicyContext,
        at: int | None = None,
    ) -> tuple[Question, Forecast]:
        """Return what one technique with one setting on one kernel is asked as, and its forecast.

        Raises:
            UserError: the id names no state.
        """
        with self._guard:
            snapshot = self._asked_of(context, at)
            policy = snapshot.policy(context.device_kind)
            known = self._known(state, snapshot)
            return policy.forecast(known, optimization, launch, setting, context)

    def _open_to(
        self, state: PerformanceState | str, context: PolicyContext, at: int | None
    ) -> tuple[Snapshot, PerformanceState, frozenset[str]]:
        """Return the snapshot, the state, and the techniques that lessons deprecate in it."""
        snapshot = self._asked_of(context, at)
        known = self._known(state, snapshot)
        return snapshot, known, snapshot.deprecated(known.id, context.device_kind, context.op_class)

    def _asked_of(self, context: PolicyContext, at: int | None) -> Snapshot:
        """Return the snapshot, with what the asker itself added since: that is read whatever
        others have had read, or what is expected would hang on their timing."""
        if context.own:
            self._contents.read()
        return self.snapshot(at)

    def lessons(
        self, at: int | None = None, technique: str | None = None, state: str | None = None
    ) -> list[Lesson]:
        """Return a lesson for each technique, class of operation and condition, in order of
        content, `contested` set where later evidence disagrees."""
        with self._guard:
            return self.snapshot(at).lessons(technique, state)

    def written_lessons(self, run: str | None = None) -> list[Lesson]:
        """Return the lessons as they were written, of one run or of all, in order of content."""
        with self._guard:
            written = self.snapshot().written_lessons()
        return [lesson for lesson in written if run in (None, lesson.run)]

    def search(
        self,
        words: str,
        device_kind: str,
        at: int | None = None,
        most: int = 8,
        kinds: Sequence[Kind] = KINDS,
    ) -> list[IndexedText]:
        """Return the states, techniques, lessons and kernels closest to a text by their words.

        Chroma finds them where this object owns the index. What was learned is of comparable
        devices; of a state that is contained in another, only the other is told.

        Args:
            words: what is looked for.
            device_kind: where it is looked for.
            at: sequence number up to which the knowledge base is read.
            most: how many.
            kinds: of what.
        """
        learned = "simulated" if device_kind == "simulated" else "measured"
        with self._guard:
            snapshot = self.snapshot(at)
            find = self._texts.nearest if self.owns_index else nearest_texts
            withdrawn = self._contents.withdrawn_at(snapshot.at)
            near = find(self._contents.indexed_texts(), words, learned, snapshot.at, kinds)
            standing = [
                each
                for each in near
                if each.name not in withdrawn
                and (each.kind != "state" or _stands(each.name, snapshot))
            ]
            return closest(words, standing, self._contents.rarity)[:most]

    def _known(self, state: PerformanceState | str, snapshot: Snapshot) -> PerformanceState:
        if isinstance(state, PerformanceState):
            return state
        found = snapshot.state(state)
        if found is None:
            raise UserError(f"the knowledge base {self.directory} knows no state {state}")
        return found

    # Kernels seen

    def tasks_seen(self, at: int | None = None) -> list[TaskSeen]:
        """Return the tasks that runs were made of."""
        with self._guard:
            return self._contents.kernels.tasks(self.snapshot(at).at)

    def kernels_won(self, task_id: str | None = None, at: int | None = None) -> list[KnownKernel]:
        """Return the kernels that won runs, of all tasks or of one, in order of arrival."""
        with self._guard:
            return self._contents.kernels.won(self.snapshot(at).at, task_id)

    def kernels_bearing_on(
        self, task: TaskSeen, device_kind: str, gpu: str, at: int | None = None
    ) -> list[Found]:
        """Return the known kernels that bear on a task, the most promising first."""
        with self._guard:
            number = self.snapshot(at).at
            return self._contents.kernels.bearing_on(task, device_kind, gpu, number)

    def tried_on(
        self, task_id: str, source_sha256: str | None = None, at: int | None = None
    ) -> list[Tried]:
        """Return what was tried on a task's kernels, or on one, and what came of each action."""
        return tried_on(self.snapshot(at).evidence(), task_id, source_sha256)

    def source(self, sha256: str) -> str | None:
        """Return the text of a kernel that won; None where it is no longer kept."""
        return self._journal.source(sha256)

    # What is added

    def see_task(self, task: TaskSeen) -> bool:
        """Note a task that a run is made of; False where it is known."""
        return bool(self._journal.append([task_entry(task)]))

    def keep_kernel(self, task: TaskSeen, kernel: KnownKernel, source: str) -> bool:
        """Keep a kernel that won, whole or not at all; False where it is known.

        A source that is too large is not kept, and where there is no room for all the worst go.
        """
        text = source if len(source.encode()) <= LARGEST_SOURCE else None
        new = self._journal.append(
            [task_entry(task), Entry(KERNEL, kernel.id, kernel.model_dump_json())],
            None if text is None else {kernel.source_sha256: text},
        )
        self._drop_sources()
        return bool(new)

    def _drop_sources(self) -> None:
        def chosen(entries: Iterable[Entry]) -> set[str]:
            return worth_keeping(
                (self._journal.read(KnownKernel, each) for each in entries), MOST_SOURCES
            )

        self._journal.keep_sources(MOST_SOURCES, KERNEL, chosen)

    def add_evidence(self, rows: Iterable[Evidence]) -> int:
        """Add evidence, ignoring rows already there; return how many were new."""
        entries = (Entry(EVIDENCE, row.id, row.model_dump_json()) for row in rows)
        return self._journal.append(entries)

    def overturn(self, rows: Iterable[Overturned]) -> int:
        """Let rows of evidence count as failures from now on; return how many newly do."""
        entries = (Entry(OVERTURNED, row.id, row.model_dump_json()) for row in rows)
        return self._journal.append(entries)

    def add_state(self, state: PerformanceState) -> bool:
        """Add a discovered state; False where its id is known."""
        return bool(self._journal.append([state_entry(state)]))

    def apply_update(self, update: KnowledgeUpdate) -> int:
        """Apply all changes of a parameter update in one transaction; return its number.

        The number names the snapshot that the update completes. An update that was applied
        before changes nothing and returns the number it got then, whatever came since.
        """
        return self._journal.append_closed(*entries_of(update))

    def merge(self, other: KnowledgeBase) -> int:
        """Take over all that the other knows and this does not; return how many entries."""
        taken = self._journal.merge(other._journal)
        self._drop_sources()
        return taken

    # Care

    def reindex(self) -> int:
        """Build the Chroma index anew; return how many texts it holds.

        Raises:
            UserError: another process owns the index.
        """
        if not self.owns_index:
            raise UserError(
                f"the knowledge base {self.directory} is in use by another process; "
                "reindex when it has ended"
            )
        with self._guard:
            self._contents.read()
            return self._texts.rebuild(self._contents.indexed_texts())

    def stats(self, at: int | None = None) -> dict[str, int]:
        """Return counts, by name."""
        snapshot = self.snapshot(at)
        return counts(
            snapshot,
            techniques=len(self._seed.techniques),
            overturned=sum(at <= snapshot.at for at, _ in self._contents.overturned.values()),
            kernels=len({each.source_sha256 for each in self.kernels_won(at=snapshot.at)}),
        )

    def show(self, at: int | None = None, device_kind: str = "simulated") -> list[dict[str, Any]]:
        """Return each state with its techniques: the prior, and what evidence there says.

        JSON values. `mean_log_gain` is None where no try passed; only evidence and lessons of
        comparable devices are counted.
        """
        return shown(self.snapshot(at), device_kind)

    def general_lessons(self, device_kind: str = "simulated") -> list[dict[str, Any]]:
        """Return the lessons that speak of no one state, as `show` does those that do."""
        found = [lesson for lesson in self.lessons() if lesson.state is None]
        return told(found, device_kind)

    def close(self) -> None:
        """Close the files and give the index back."""
        with self._guard:
            self._texts.close()
            self._journal.close()
            if self._lock is not None:
                self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stands(state_id: str, snapshot: Snapshot) -> bool:
    found = snapshot.state(state_id)
    return found is not None and found.id == state_id

"""What a journal holds, each entry parsed once: everything that snapshots are views of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from sys import intern
from typing import Any, Literal, NamedTuple, TypeVar

from ....harness.records.outcomes import Outcome
from ....harness.records.record import Record
from ...records.edits import AddMacro, AddTechnique, Revert, SplitState
from ...records.evidence import Evidence, Overturned
from ...records.lessons import Lesson, Withdrawal
from ...records.optimizations import Optimization, StateOptimization
from ...records.policy import setting_name
from ...records.states import PerformanceState
from ..journal import Entry, Journal
from ..kernels import Kernels, KnownKernel, TaskSeen
from ..policy.actions import USUAL_US, Action, Situation, Tried, writer_of
from ..policy.expectation import Expectations
from ..policy.facts import Facts
from ..retrieval.text_index import IndexedText
from ..retrieval.words import Rarity
from ..seed import Seed
from ..states.signature import completed
from .edits import StoredEdit, WrittenEdit, reverted

EVIDENCE, STATE, OPTIMIZATION = "evidence", "state", "optimization"
LESSON, WITHDRAWAL, OVERTURNED = "lesson", "withdrawal", "overturned"
TASK, KERNEL = "task", "kernel"
EDIT, REVERT = "edit", "revert"
KINDS: Mapping[str, type[Record]] = {
    EVIDENCE: Evidence, STATE: PerformanceState, OPTIMIZATION: StateOptimization, LESSON: Lesson,
    WITHDRAWAL: Withdrawal, OVERTURNED: Overturned, TASK: TaskSeen, KERNEL: KnownKernel,
    EDIT: WrittenEdit, REVERT: Revert,
}  # fmt: skip
"""What the entries of each kind hold."""

_FIELDS = {kind: set(kind.model_fields) for kind in KINDS.values()}
"""Shared by all records of a kind."""

Kept = TypeVar("Kept", bound=Record)

Subject = tuple[bool, str]
"""Simulated or not, and a technique."""


class StoredLesson(NamedTuple):
    """A lesson with what it is sorted by."""

    order: tuple[object, ...]
    lesson: Lesson


class StoredChange(NamedTuple):
    """A change of an optimization with what counts over what, and its sequence number."""

    rank: tuple[int, str, str]
    sequence: int
    change: StateOptimization


class Contents:
    """Only ever added to, in order of sequence: what was read up to a number stays the same.

    Another process may write too; `read` takes what is new, whoever wrote it.
    """

    def __init__(
        self, journal: Journal, seed: Seed, expectations: Expectations | None = None
    ) -> None:
        """Take a journal, a seed, and what learns from evidence, where it is not the usual."""
        self.sequence = 0
        """Of the newest entry read."""
        self.seed = seed
        self.facts = Facts()
        self.kernels = Kernels()
        self.expectations = expectations or Expectations()
        """What all evidence says of what comes next."""
        self.states: list[tuple[int, PerformanceState]] = [(0, state) for state in seed.states]
        """The seed's, then the discovered ones in order of arrival, with their sequences."""
        self.changes: list[StoredChange] = []
        self.lessons: dict[Subject, list[StoredLesson]] = {}
        """By what they speak of, in order of arrival."""
        self.deprecations: dict[Subject, list[StoredLesson]] = {}
        """Those of them that advise against something."""
        self._withdrawn: dict[str, tuple[int, str]] = {}
        """By id of a withdrawal, its sequence and which lesson does not stand."""
        self.edits: list[StoredEdit] = []
        """In order of arrival, with what undoes them."""
        self._split: list[tuple[int, PerformanceState]] = []
        """States that an edit made of a part of another."""
        self._journal = journal
        self.overturned: dict[str, tuple[int, Overturned]] = {}
        """By id of the row of evidence, with the sequence from which on."""
        self._began: dict[str, str] = {}
        """When each run wrote its first row."""
        self._discovered: set[str] = set()
        self._signatures: dict[tuple[float, ...], tuple[float, ...]] = {}
        self._settings: dict[str, dict[str, Any]] = {}
        self._texts: tuple[IndexedText, ...] = ()
        self._texts_of = (-1, -1)

    def read(self) -> None:
        """Parse the entries that were added since the last time."""
        for entry in self._journal.entries(after=self.sequence):
            self._take(entry)
            self.sequence = entry.sequence

    def indexed_texts(self) -> tuple[IndexedText, ...]:
        """Return what can be found by words: the same object while nothing of it is added."""
        lessons = sum(map(len, self.lessons.values()))
        told = len(self.states), len(self.changes), len(self.edits), self.kernels.count
        number = sum(told), lessons
        if self._texts_of != number:
            self._texts_of, self._texts = number, tuple(self._all_texts())
        return self._texts

    @cached_property
    def rarity(self) -> Rarity:
        """How rare words are in what the seed holds: the same whatever is added."""
        return Rarity(each.document for each in self._all_texts() if each.sequence == 0)

    def _all_texts(self) -> Iterator[IndexedText]:
        for sequence, state in (*self.states, *self._split):
            text = f"{state.name}. {state.description}"
            yield IndexedText("state", state.id, sequence, "", text)
        for name, card in self.seed.techniques.items():
            yield IndexedText("technique", name, 0, "", _in_words(card))
        new: dict[tuple[str, bool], IndexedText] = {}
        cards = [(each.sequence, each.change.device_kind, each.change.optimization)
                 for each in self.changes]  # fmt: skip
        cards += [
            (each.sequence, each.content.device_kind, each.content.card)
            for each in self.edits
            if isinstance(each.content, AddTechnique | AddMacro)
        ]
        for sequence, device_kind, card in cards:
            simulated = device_kind == "simulated"
            if card.technique not in self.seed.techniques:
                found = IndexedText(
                    "technique", card.technique, sequence, _learned(simulated), _in_words(card)
                )
                new.setdefault((card.technique, simulated), found)
        yield from new.values()
        for (simulated, _), stored in self.lessons.items():
            for each in stored:
                lesson = each.lesson
                yield IndexedText(
                    "lesson", lesson.id, lesson.created, _learned(simulated), lesson.text
                )
        for sequence, kernel, task in self.kernels.indexed():
            learned = _learned(kernel.device_kind == "simulated")
            text = _won(kernel, task)
            yield IndexedText("kernel", kernel.source_sha256, sequence, learned, text)

    def _take(self, entry: Entry) -> None:
        if entry.kind == EVIDENCE:
            told = self.seed.in_todays_words(self._journal.read(Evidence, entry))
            row = kept(
                told,
                signature_before=self._once(self._completed(entry, told.signature_before)),
                launch_signature=self._once(told.launch_signature),
                parameters=self._setting(told.parameters),
                earlier=told.earlier and self._setting(told.earlier),
            )
            self.facts.add(entry.sequence, entry.id, row)
            self._learn(entry, row)
        elif entry.kind == OVERTURNED:
            overturned = self._journal.read(Overturned, entry)
            known = self.overturned.setdefault(overturned.evidence, (entry.sequence, overturned))
            if known[1] is overturned:
                self._overturn(overturned.evidence, entry.sequence)
        elif entry.kind == STATE:
            state = self._journal.read(PerformanceState, entry)
            centroid = self._completed(entry, state.centroid)
            state = state.model_copy(update={"centroid": centroid})
            if state.id not in self._discovered:
                self._discovered.add(state.id)
                self.states.append((entry.sequence, state))
        elif entry.kind == OPTIMIZATION:
            change = self._journal.read(StateOptimization, entry)
            optimization = self.seed.with_todays_parameters(change.optimization)
            todays = change.model_copy(update={"optimization": optimization})
            self.changes.append(StoredChange(change.rank, entry.sequence, todays))
        elif entry.kind == LESSON:
            lesson = kept(self._journal.read(Lesson, entry), created=entry.sequence)
            stored = StoredLesson((*lesson.order, entry.id), lesson)
            self.lessons.setdefault(subject(lesson), []).append(stored)
            if lesson.kind == "deprecation":
                self.deprecations.setdefault(subject(lesson), []).append(stored)
        elif entry.kind == WITHDRAWAL:
            withdrawal = self._journal.read(Withdrawal, entry)
            self._withdrawn.setdefault(entry.id, (entry.sequence, withdrawal.lesson))
        elif entry.kind == TASK:
            self.kernels.add_task(entry.sequence, self._journal.read(TaskSeen, entry))
        elif entry.kind == KERNEL:
            self.kernels.add_kernel(entry.sequence, self._journal.read(KnownKernel, entry))
        elif entry.kind == EDIT:
            edit = self._journal.read(WrittenEdit, entry).edit
            if isinstance(edit, SplitState):
                whole = self._completed(entry, edit.other.centroid)
                other = edit.other.model_copy(update={"centroid": whole})
                edit = edit.model_copy(update={"other": other})
                self._split.append((entry.sequence, other))
            elif isinstance(edit, AddTechnique | AddMacro):
                card = self.seed.with_todays_parameters(edit.card)
                edit = edit.model_copy(update={"card": card})
            self.edits.append(StoredEdit(entry.sequence, entry.id, edit, edit.rank))
        elif entry.kind == REVERT:
            revert = self._journal.read(Revert, entry)
            self.edits.append(StoredEdit(entry.sequence, entry.id, revert))

    def _learn(self, entry: Entry, row: Evidence) -> None:
        """Add a row to what is expected by, if it says anything of its technique."""
        if row.outcome is Outcome.NOT_APPLICABLE or not row.outcome.is_verdict:
            return
        self.expectations.add(self._tried(row), entry.sequence, entry.id)
        if entry.id in self.overturned:  # Where bases are merged it may come first.
            self._overturn(entry.id, entry.sequence)

    def _overturn(self, evidence: str, sequence: int) -> None:
        """Let a row count as a failure, where it is here."""
        row = self.facts.row(evidence)
        if row is not None and row.log_gain is not None:
            why = self.overturned[evidence][1].outcome
            tried = self._tried(row)._replace(reason=why)
            self.expectations.overturn(evidence, tried, sequence)

    def _tried(self, row: Evidence) -> Tried:
        return _tried(row, self._began.setdefault(row.run, row.created))

    def withdrawn_at(self, at: int) -> frozenset[str]:
        """Return the ids of the lessons that do not stand at a sequence number."""
        undone = reverted(self.edits, at) if self._withdrawn else frozenset()
        return frozenset(
            lesson
            for name, (since, lesson) in self._withdrawn.items()
            if since <= at and name not in undone
        )

    def _once(self, signature: tuple[float, ...]) -> tuple[float, ...]:
        """Return the first signature with these values: a kernel's many tries share it."""
        return self._signatures.setdefault(signature, signature)

    def _setting(self, setting: dict[str, Any]) -> dict[str, Any]:
        """Return the first setting with these values: few are told of many times."""
        return self._settings.setdefault(setting_name(setting), setting)

    def _completed(self, entry: Entry, signature: tuple[float, ...]) -> tuple[float, ...]:
        try:
            return completed(signature)
        except ValueError as error:
            raise self._journal.damaged(entry, str(error)) from error


def kept(record: Kept, **changes: object) -> Kept:
    """Return a record that nobody else has, with some values changed, as a million are held: equal
    texts are one object, and so is pydantic's set of the fields that were given, which takes more
    than all values together."""
    values = {
        name: intern(value) if type(value) is str else value
        for name, value in (record.__dict__ | changes).items()
    }
    object.__setattr__(record, "__dict__", values)
    object.__setattr__(record, "__pydantic_fields_set__", _FIELDS[type(record)])
    return record


def subject(lesson: Lesson) -> Subject:
    """Return what rows of evidence speak for or against a lesson: of a composite, its last step."""
    return lesson.device_kind == "simulated", (lesson.technique or "").split(" then ")[-1]


def _tried(row: Evidence, began: str) -> Tried:
    """Return what a row says of its action; `began`: when its run did."""
    situation = Situation(
        task=row.task_id,
        op_class=row.op_class,
        dtype=row.dtype,
        gpu=row.gpu,
        family=row.family,
        simulated=row.device_kind == "simulated",
        signature=row.launch_signature or row.signature_before,
        share=row.launch_share or 1.0,
        microseconds=row.microseconds or USUAL_US,
        bound_us=row.bound_us,
        source=row.parent_sha256,
        harness=row.harness,
    )
    writer = writer_of(row.author)
    action = Action(row.technique, row.launch, row.parameters, row.earlier, writer)
    setting = setting_name(row.parameters)
    return Tried(
        situation,
        action,
        row.log_gain,
        reason=row.outcome.value,
        standard_error=row.standard_error,
        # What earlier versions expected was another thing.
        expected=None if row.forecast_std is None else row.expected_log_gain,
        child=row.child_sha256 or "",
        run=row.run,
        # Where it was made in its run: rollouts that run beside each other arrive in any order.
        made=(
            began, row.iteration, row.rollout, row.step, row.repairs, row.parent_sha256, setting,
            row.child_sha256 or "", row.log_gain or 0.0,
        ),
    )  # fmt: skip


def _in_words(card: Optimization) -> str:
    return f"{card.description} Applies when: {card.applies_when} {card.notes}"


def _won(kernel: KnownKernel, task: TaskSeen | None) -> str:
    of = f"{task.name}, {task.op_class} of {task.dtype}: {' '.join(task.operators)}" if task else ""
    gain = f", {kernel.gain:.1f}x" if kernel.gain else ""
    made = " then ".join(kernel.techniques) or "as it was first written"
    return f"{of or kernel.task_id} on {kernel.gpu}{gain} by {made}."


def _learned(simulated: bool) -> Literal["simulated", "measured"]:
    return "simulated" if simulated else "measured"

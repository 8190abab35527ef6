"""The lessons of a snapshot: one for each key, with what evidence says for and against it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from ....harness.records.outcomes import Outcome
from ...records.evidence import NO_GAIN, Evidence
from ...records.lessons import Lesson
from ..policy.facts import Told, comparable
from ..states.conditions import KernelFacts, evidence_facts, unmet
from .contents import Contents, StoredLesson, Subject, kept

BUILTIN = "builtin"
"""Author of lessons that no model and no person worded."""
CONTESTED_AFTER = 2
"""Later rows that make a lesson contested, when their mean is a gain on the other side of 0."""


class _Judged:
    """The lessons on one subject, judged by so many rows when they are first asked for."""

    def __init__(
        self,
        known: tuple[int, int],
        standing: list[StoredLesson],
        rows: _Rows,
        before: _Judged | None,
    ) -> None:
        self.known = known
        """How many rows, and lessons, those that do not stand among them, there were."""
        self._standing, self._rows = standing, rows
        if before is not None and before.known[1] == known[1]:
            # The same lessons, and more rows: who speaks for whom stays to be asked.
            self._standing = before._standing
            if "_groups" in vars(before):
                self._groups = before._groups

    @cached_property
    def _groups(self) -> list[_Group]:
        return _grouped(self._standing)

    @cached_property
    def marked(self) -> list[StoredLesson]:
        """As they were written, in order of content."""
        marked = (StoredLesson(order, self._rows.marked(each)) for order, each in self._standing)
        return sorted(marked, key=lambda each: each.order)

    @cached_property
    def spoken(self) -> list[StoredLesson]:
        """One for each key, under the first of its key."""
        return [
            StoredLesson(each.order, _speaker(each, self._rows.contest, self._rows.marked))
            for each in self._groups
        ]


class Lessons:
    """What was written up to a sequence number, judged by the evidence up to there: the lessons on
    a subject when they are first asked for."""

    def __init__(
        self,
        contents: Contents,
        at: int,
        before: Lessons | None = None,
        standing: Mapping[str, str] | None = None,
    ) -> None:
        """Take what was written; what `before`, of another snapshot, found of a subject that has
        got neither rows nor lessons since is taken over. `standing` says which state each that is
        another now is: rows of either speak of the lessons of both."""
        self._contents, self._at = contents, at
        self._standing = standing or {}
        self._withdrawn = contents.withdrawn_at(at)
        self._judged: dict[tuple[str, Subject], _Judged] = {}
        known = before is not None and (before._withdrawn, before._standing)
        if before is not None and known == (self._withdrawn, self._standing):
            self._judged |= before._judged

    @cached_property
    def written(self) -> list[StoredLesson]:
        """As they were written, in order of content."""
        return self._in_order(lambda judged: judged.marked)

    @cached_property
    def all(self) -> list[StoredLesson]:
        """One for each key, in order of content."""
        return self._in_order(lambda judged: judged.spoken)

    def deprecated(self, state_id: str, device_kind: str, op_class: str) -> frozenset[str]:
        """Return techniques that an uncontested lesson advises against in a state.

        For one class of operation: a technique that is unsafe for a softmax may suit a matrix
        product.
        """
        return frozenset(
            str(lesson.technique)
            for lesson in self._deprecations.get(state_id, ())
            if lesson.op_class in (None, op_class) and comparable(lesson.device_kind, device_kind)
        )

    @cached_property
    def _deprecations(self) -> dict[str | None, list[Lesson]]:
        """Those that nothing contests, by state."""
        found: dict[str | None, list[Lesson]] = {}
        for subject, stored in self._contents.deprecations.items():
            for _, lesson in self._of("deprecation", subject, stored).marked:
                if lesson.technique and not lesson.contested:
                    found.setdefault(lesson.state, []).append(lesson)
        return found

    def _in_order(self, part: Callable[[_Judged], list[StoredLesson]]) -> list[StoredLesson]:
        found = [
            each
            for subject, stored in self._contents.lessons.items()
            for each in part(self._of("", subject, stored))
        ]
        return sorted(found, key=lambda each: each.order)

    def _of(self, kind: str, subject: Subject, stored: list[StoredLesson]) -> _Judged:
        """Judge the lessons on a subject; `kind`: those of one kind alone."""
        simulated, technique = subject
        written = bisect_right(stored, self._at, key=lambda each: each.lesson.created)
        tried = self._contents.facts.count(technique, simulated, self._at)
        known = self._judged.get((kind, subject))
        if known is None or known.known != (tried, written):
            rows = self._contents.facts.tries(technique, simulated, self._at)
            standing = [
                each
                for each in stored[:written]
                if not self._withdrawn or each.lesson.id not in self._withdrawn
            ]
            asked = _Rows(rows, self._standing)
            known = _Judged((tried, written), standing, asked, known)
            self._judged[kind, subject] = known
        return known


def merged(lessons: Iterable[StoredLesson]) -> Iterator[StoredLesson]:
    """Give one lesson for each key of marked ones: who speaks for all of its key, under the order
    of the first.

    That is one that nothing contests, then in a model's or a person's words, then one that says
    when it holds, then with most evidence. What describes a state is no lesson; deprecations each
    speak for their state.
    """
    for group in _grouped(lessons):
        yield StoredLesson(
            group.order, _speaker(group, lambda lesson: lesson.contested, lambda lesson: lesson)
        )


class _Group(NamedTuple):
    """Lessons of one key."""

    order: tuple[object, ...]
    """Of the first."""
    ranked: Sequence[StoredLesson]
    """Who speaks first, where nothing contests it."""
    of_several: bool
    """Whether they speak of several states."""


def _grouped(lessons: Iterable[StoredLesson]) -> list[_Group]:
    groups: dict[object, list[StoredLesson]] = {}
    for each in lessons:
        lesson = each.lesson
        if lesson.kind != "new_state":
            key = each.order if lesson.kind == "deprecation" else lesson.key
            groups.setdefault(key, []).append(each)
    return [
        _Group(
            min(each.order for each in group),
            sorted(group, key=_rank),
            len({each.lesson.state for each in group}) > 1,
        )
        for group in groups.values()
    ]


def _rank(stored: StoredLesson) -> tuple[object, ...]:
    lesson = stored.lesson
    return (
        lesson.author == BUILTIN, lesson.kind != "condition", -len(lesson.evidence), stored.order
    )  # fmt: skip


def _speaker(
    group: _Group, contested: Callable[[Lesson], bool], marked: Callable[[Lesson], Lesson]
) -> Lesson:
    speaking = (each.lesson for each in group.ranked if not contested(each.lesson))
    # Marked as what it is, a lesson on its own state.
    best = marked(next(speaking, group.ranked[0].lesson))
    return best.model_copy(update={"state": None}) if group.of_several else best


class _Rows:
    """Rows on one subject, in order of arrival; what is asked of them again is kept."""

    def __init__(self, rows: Iterable[Told], standing: Mapping[str, str]) -> None:
        self._all = [told for told in rows if told.row.outcome is not Outcome.NOT_APPLICABLE]
        self._standing = standing
        self._near: dict[tuple[str | None, str | None], list[Told]] = {(None, None): self._all}
        for told in self._all:
            op_class = told.row.op_class
            state = standing.get(told.row.state_before, told.row.state_before)
            for place in ((state, op_class), (state, None), (None, op_class)):
                self._near.setdefault(place, []).append(told)
        self._scopes: dict[tuple[object, ...], _Scope] = {}
        self._counted: dict[tuple[object, ...], tuple[int, int]] = {}
        self._facts: dict[int, KernelFacts] = {}

    def marked(self, lesson: Lesson) -> Lesson:
        """Return a lesson with what rows say of it."""
        supporting, opposing = self.counts(lesson)
        return kept(
            lesson.model_copy(),
            contested=self.contest(lesson),
            supporting=supporting,
            opposing=opposing,
        )

    def contest(self, lesson: Lesson) -> bool:
        """Say whether later rows contest a lesson."""
        state = lesson.state and self._standing.get(lesson.state, lesson.state)
        scope = lesson.technique, state, lesson.op_class
        if scope not in self._scopes:
            self._scopes[scope] = _Scope(self._spoken_of(lesson, state))
        return self._scopes[scope].contests(lesson)

    def counts(self, lesson: Lesson) -> tuple[int, int]:
        """Return how many rewrites agree with what a lesson claims, whatever the state, and how
        many do not; the same rewrite measured again counts once."""
        if lesson.claimed_log_gain is None and not lesson.evidence:
            return 0, 0  # It claims nothing that a row could show.
        claim = *lesson.key, _claimed(lesson.claimed_log_gain)
        if claim not in self._counted:
            said: dict[object, bool | None] = {}
            for told in self._spoken_of(lesson, None):
                row = told.row
                if lesson.conditions and unmet(lesson.conditions, self._facts_of(told)):
                    continue
                rewrite = row.task_id, row.parent_sha256, row.child_sha256, row.gpu
                said[rewrite] = _agrees(row, lesson.claimed_log_gain)
            agreeing = list(said.values())
            self._counted[claim] = agreeing.count(True), agreeing.count(False)
        return self._counted[claim]

    def _spoken_of(self, lesson: Lesson, state: str | None) -> list[Told]:
        """Return the rows of the lesson's last technique made where it applies."""
        near = self._near.get((state, lesson.op_class), [])
        *before, _ = (lesson.technique or "").split(" then ")
        if not before:
            return near
        return [told for told in near if told.row.previous_technique == before[-1]]

    def _facts_of(self, told: Told) -> KernelFacts:
        if told.sequence not in self._facts:
            self._facts[told.sequence] = evidence_facts(told.row)
        return self._facts[told.sequence]


class _Scope:
    """Rows that a lesson could be contested by, in order of arrival."""

    def __init__(self, rows: Sequence[Told]) -> None:
        self._sequences = [told.sequence for told in rows]
        gains = [told.row.log_gain for told in rows]
        self._passed = any(gain is not None for gain in gains)
        self._from = [*accumulate((gain or 0.0 for gain in reversed(gains)), initial=0.0)][::-1]
        """Of each row, the sum of the gains from it on."""

    def contests(self, lesson: Lesson) -> bool:
        """Say whether they contest a lesson."""
        if lesson.kind == "deprecation" and lesson.claimed_log_gain is None:
            # It says that no try passes, so one pass is enough, also one that another process
            # wrote while the lesson was being drawn.
            return self._passed
        if not lesson.claimed_log_gain:
            return False
        first = bisect_right(self._sequences, lesson.created)
        later = len(self._sequences) - first
        if later < CONTESTED_AFTER:
            return False
        against = -math.copysign(1.0, lesson.claimed_log_gain)
        return against * self._from[first] / later > NO_GAIN


def _claimed(gain: float | None) -> str:
    """Return what a claim says that a row can bear out: nothing, none, a gain, a loss."""
    if gain is None:
        return ""
    return "none" if abs(gain) <= NO_GAIN else "more" if gain > 0 else "less"


def _agrees(row: Evidence, claimed: float | None) -> bool | None:
    """Say whether a row bears out a claim: of a gain, of a loss, of none, or that it breaks."""
    if claimed is None:
        return False if row.log_gain is not None else row.outcome.breaks_kernel or None
    if row.log_gain is None:
        return None
    if abs(claimed) <= NO_GAIN:
        return abs(row.log_gain) <= NO_GAIN
    return row.log_gain * claimed > 0 and abs(row.log_gain) > NO_GAIN

"""The lessons of a snapshot: one for each key, with what evidence says for and against it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from ....harness.records import Outcome
from ...records.evidence import NO_GAIN, Evidence
from ...records.lessons import Lesson
from ..policy.facts import Told, comparable
from ..states.conditions import KernelFacts, evidence_facts, unmet
from .contents import Contents, StoredLesson, Subject

BUILTIN = "builtin"
"""Author of lessons that no model and no person worded."""
CONTESTED_AFTER = 2
"""Later rows that make a lesson contested, when their mean is a gain on the other side of 0."""

Marked = tuple[int, int, list[StoredLesson]]
"""Lessons on one subject, and of how many rows and lessons they were made."""


class Lessons:
    """What was written up to a sequence number, judged by the evidence up to there."""

    def __init__(self, contents: Contents, at: int, before: Lessons | None = None) -> None:
        """Judge the lessons; what `before`, of another snapshot, found of a subject that has got
        neither rows nor lessons since is taken over."""
        self._marked: dict[Subject, Marked] = {}
        self._withdrawn = contents.withdrawn_at(at)
        changed = before is None or before._withdrawn != self._withdrawn
        for subject, stored in contents.lessons.items():
            written = bisect_right(stored, at, key=lambda each: each.lesson.created)
            if not written:
                continue
            simulated, technique = subject
            tried = contents.facts.count(technique, simulated, at)
            known = before._marked.get(subject) if before else None
            if known is None or known[:2] != (tried, written):
                changed = True
                rows = contents.facts.tries(technique, simulated, at)
                known = tried, written, _marked(stored[:written], rows)
            self._marked[subject] = known
        self.written: list[Lesson]
        """As they were written, in order of content."""
        self.all: list[Lesson]
        """One for each key, in order of content."""
        self._deprecations: dict[str | None, list[Lesson]]
        """Those that nothing contests, by state."""
        if before is not None and not changed and len(self._marked) == len(before._marked):
            self.written, self.all = before.written, before.all
            self._deprecations = before._deprecations
            return
        marked = [
            each
            for *_, known in self._marked.values()
            for each in known
            if not self._withdrawn or each.lesson.id not in self._withdrawn
        ]
        self.written = [each.lesson for each in sorted(marked, key=lambda each: each.order)]
        self.all = merged(self.written)
        self._deprecations = {}
        for lesson in self.written:
            if lesson.kind == "deprecation" and lesson.technique and not lesson.contested:
                self._deprecations.setdefault(lesson.state, []).append(lesson)

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


def merged(lessons: Iterable[Lesson]) -> list[Lesson]:
    """Return one lesson for each key, in the order given: the one that speaks for all of its key.

    That is one that nothing contests, then in a model's or a person's words, then one that says
    when it holds, then with most evidence. What describes a state is no lesson; deprecations each
    speak for their state.
    """
    groups: dict[object, list[Lesson]] = {}
    for lesson in lessons:
        if lesson.kind != "new_state":
            key = lesson.id if lesson.kind == "deprecation" else lesson.key
            groups.setdefault(key, []).append(lesson)
    return [_spoken(group) for group in groups.values()]


def _spoken(group: Sequence[Lesson]) -> Lesson:
    best = min(
        group,
        key=lambda each: (
            each.contested, each.author == BUILTIN, each.kind != "condition",
            -len(each.evidence), each.order, each.id,
        ),
    )  # fmt: skip
    if len({lesson.state for lesson in group}) > 1:
        return best.model_copy(update={"state": None})
    return best


def _marked(stored: Sequence[StoredLesson], rows: Sequence[Told]) -> list[StoredLesson]:
    """Return lessons on one subject, those contested marked, by its rows in order of arrival."""
    rows = [told for told in rows if told.row.outcome is not Outcome.NOT_APPLICABLE]
    places: dict[tuple[str, str], list[Told]] = {}
    for told in rows:
        places.setdefault((told.row.state_before, told.row.op_class), []).append(told)
    speaking: dict[tuple[object, ...], list[Told]] = {}
    counted: dict[tuple[object, ...], tuple[int, int]] = {}
    found = []
    for order, lesson in stored:
        scope = lesson.technique, lesson.state, lesson.op_class
        if scope not in speaking:
            near = rows
            if lesson.state is not None and lesson.op_class is not None:
                near = places.get((lesson.state, lesson.op_class), [])
            speaking[scope] = [told for told in near if _speaks_of(told.row, lesson)]
        claim = *lesson.key, lesson.claimed_log_gain, bool(lesson.evidence)
        if claim not in counted:
            counted[claim] = _counts(lesson, rows)
        supporting, opposing = counted[claim]
        lesson = lesson.model_copy(
            update={
                "contested": _is_contested(lesson, speaking[scope]),
                "supporting": supporting,
                "opposing": opposing,
            }
        )
        found.append(StoredLesson(order, lesson))
    return found


def _counts(lesson: Lesson, rows: Sequence[Told]) -> tuple[int, int]:
    """Return how many rewrites agree with what a lesson claims, whatever the state, and how many
    do not; the same rewrite measured again counts once."""
    if lesson.claimed_log_gain is None and not lesson.evidence:
        return 0, 0  # It claims nothing that a row could show.
    everywhere = lesson.model_copy(update={"state": None})
    said: dict[object, bool | None] = {}
    for told in rows:
        row = told.row
        if _speaks_of(row, everywhere) and not unmet(lesson.conditions, _facts(row, lesson)):
            rewrite = row.task_id, row.parent_sha256, row.child_sha256, row.gpu
            said[rewrite] = _agrees(row, lesson.claimed_log_gain)
    agreeing = list(said.values())
    return agreeing.count(True), agreeing.count(False)


def _facts(row: Evidence, lesson: Lesson) -> KernelFacts:
    return evidence_facts(row) if lesson.conditions else {}


def _agrees(row: Evidence, claimed: float | None) -> bool | None:
    """Say whether a row bears out a claim: of a gain, of a loss, of none, or that it breaks."""
    if claimed is None:
        return False if row.log_gain is not None else row.outcome.breaks_kernel or None
    if row.log_gain is None:
        return None
    if abs(claimed) <= NO_GAIN:
        return abs(row.log_gain) <= NO_GAIN
    return row.log_gain * claimed > 0 and abs(row.log_gain) > NO_GAIN


def _speaks_of(row: Evidence, lesson: Lesson) -> bool:
    """Say whether a row of the lesson's last technique was made where the lesson applies."""
    *before, _ = (lesson.technique or "").split(" then ")
    return (
        lesson.state in (None, row.state_before)
        and lesson.op_class in (None, row.op_class)
        and (not before or row.previous_technique == before[-1])
    )


def _is_contested(lesson: Lesson, rows: Sequence[Told]) -> bool:
    if lesson.kind == "deprecation" and lesson.claimed_log_gain is None:
        # It says that no try passes, so one pass is enough, also one that another process
        # wrote while the lesson was being drawn.
        return any(told.row.log_gain is not None for told in rows)
    if not lesson.claimed_log_gain:
        return False
    first = bisect_right(rows, lesson.created, key=lambda told: told.sequence)
    later = [told.row.log_gain or 0.0 for told in rows[first:]]
    if len(later) < CONTESTED_AFTER:
        return False
    against = -math.copysign(1.0, lesson.claimed_log_gain)
    return against * math.fsum(later) / len(later) > NO_GAIN

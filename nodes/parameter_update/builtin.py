"""Built-in parameter update: gaps become edits of the policy, and lessons that say why.

Which edits there are is `by_rule`'s matter; those that evidence does not bear out are refused, and
the rest stands. States that were found are added. A lesson is written once: what is said of a
technique in a class of operation already, with the same verdict, is not said again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...memory.knowledge.changes.edit_checks import grounded
from ...memory.knowledge.policy.facts import comparable
from ...memory.records.edits import Deprecate, Edit
from ...memory.records.evidence import NO_GAIN
from ...memory.records.lessons import Lesson, LessonKind
from ...memory.records.update import KnowledgeUpdate
from ...tools.wording.edits import edit_text
from ..records.gradient import Gap, GapAnalysis, WrittenEdit, WrittenLesson
from .by_rule import Learned, edits_by_rule

KINDS: dict[str, LessonKind] = {
    "overestimated": "correction",
    "underestimated": "correction",
    "fails": "condition",
    "sequence": "composite",
}


@dataclass(frozen=True)
class Known:
    """What the knowledge base knew when the iteration was over."""

    learned: Learned
    lessons: Sequence[Lesson] = ()
    """There already, as of the iteration's snapshot."""


@dataclass(frozen=True)
class Change:
    """What an iteration teaches."""

    update: KnowledgeUpdate
    refused: tuple[str, ...] = ()
    """Edits that are not written, in words, with the reason."""


def knowledge_update(analysis: GapAnalysis, known: Known) -> Change:
    """Return what the knowledge base should learn from one iteration's gaps."""
    learned = known.learned
    edits, refused = grounded(edits_by_rule(analysis.gaps, learned), learned.ground())
    deprecated = {edit.technique for edit in edits if isinstance(edit, Deprecate)}
    lessons = []
    for gap in analysis.gaps:
        if gap.kind not in KINDS or (gap.kind == "fails" and gap.technique in deprecated):
            continue  # An expectation that held teaches nothing; a deprecation says it itself.
        lesson = _lesson(gap, analysis.iteration, learned)
        if not any(_says(earlier, lesson) for earlier in known.lessons):
            lessons.append(lesson)
    return Change(
        KnowledgeUpdate(
            run=learned.run,
            iteration=analysis.iteration,
            states=tuple(learned.found.values()),
            lessons=tuple(lessons),
            edits=edits,
        ),
        tuple(f"{edit_text(edit)}: {why}" for edit, why in refused),
    )


def _lesson(gap: Gap, iteration: int, learned: Learned) -> Lesson:
    return Lesson(
        text=_text(gap, learned),
        kind=KINDS[gap.kind],
        technique=" then ".join(gap.techniques) or gap.technique,
        state=gap.state_id,
        op_class=learned.op_class,
        claimed_log_gain=gap.log_gain,
        evidence=gap.evidence,
        device_kind=learned.device_kind,
        author=gap.author,
        run=learned.run,
        iteration=iteration,
    )


def _says(earlier: Lesson, lesson: Lesson) -> bool:
    """Say whether an earlier lesson says of a technique what another would."""
    return (
        earlier.key == lesson.key
        and not earlier.contested
        and comparable(earlier.device_kind, lesson.device_kind)
        and _verdict(earlier) == _verdict(lesson)
    )


def _verdict(lesson: Lesson) -> int | None:
    gain = lesson.claimed_log_gain
    return None if gain is None else (gain > NO_GAIN) - (gain < -NO_GAIN)


def _text(gap: Gap, learned: Learned) -> str:
    op_class = learned.op_class
    where = f'{gap.technique} in "{gap.state_name}" ({op_class})'
    if gap.kind == "sequence":
        # A model's own words say themselves whether the order matters.
        advice = "" if gap.cause or gap.condition else f" {_advice(gap, learned)}"
        return f'For {op_class} in "{gap.state_name}": {gap.explained}.{advice}'
    if gap.kind == "fails":
        return f"{where} failed: {gap.explained}. Try it only where this cannot happen."
    if abs(gap.log_gain or 0.0) < NO_GAIN:
        return f"{where} gains nothing: {gap.explained}."
    lost = (gap.log_gain or 0.0) < 0.0
    verdict = {
        "overestimated": "costs time" if lost else "gains less than expected",
        "underestimated": "costs less than expected" if lost else "gains more than expected",
    }[gap.kind]
    return f"{where} {verdict}: {gap.explained}."


def _advice(gap: Gap, learned: Learned) -> str:
    """Say what to do with a sequence: steps of it that gained nothing are not advised."""
    rows = [learned.rows[name] for name in gap.evidence if name in learned.rows]
    idle = dict.fromkeys(
        row.technique for row in rows if row.log_gain is not None and row.log_gain < NO_GAIN
    )
    if not idle:
        return "Try them in this order."
    return f"Try them in this order, without {' and '.join(idle)} at first: that gained nothing."


def written_lessons(
    change: KnowledgeUpdate, state_names: Mapping[str, str]
) -> tuple[WrittenLesson, ...]:
    """Return the lessons of an update as a person reads them."""
    return tuple(
        WrittenLesson(
            id=lesson.id,
            kind=lesson.kind,
            state_name=state_names.get(lesson.state or "", lesson.state or ""),
            technique=lesson.technique or "",
            text=lesson.text,
            author=lesson.author,
        )
        for lesson in change.lessons
    )


def written_edits(edits: Iterable[Edit], state_names: Mapping[str, str]) -> tuple[WrittenEdit, ...]:
    """Return the edits of an update as a person reads them."""
    return tuple(
        WrittenEdit(
            id=edit.id, kind=edit.edit, text=edit_text(edit, state_names), author=edit.author
        )
        for edit in edits
    )

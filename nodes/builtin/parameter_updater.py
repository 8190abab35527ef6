"""Built-in parameter update: turn gaps into lessons of the knowledge base."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...memory.records import KnowledgeUpdate, Lesson, LessonKind
from ..records import Gap, GapAnalysis, WrittenLesson

KINDS: dict[str, LessonKind] = {
    "overestimated": "correction",
    "underestimated": "correction",
    "fails": "condition",
    "confirmed": "observation",
    "sequence": "composite",
}


def knowledge_update(
    op_class: str, device_kind: str, analysis: GapAnalysis, run: str
) -> KnowledgeUpdate:
    """Return what the knowledge base should learn from one iteration's gaps."""
    return KnowledgeUpdate(
        run=run,
        iteration=analysis.iteration,
        lessons=tuple(
            _lesson(gap, op_class, device_kind, run, analysis.iteration) for gap in analysis.gaps
        ),
    )


def _lesson(gap: Gap, op_class: str, device_kind: str, run: str, iteration: int) -> Lesson:
    technique = " then ".join(gap.techniques) or gap.technique
    return Lesson(
        text=_text(gap, op_class),
        kind=KINDS[gap.kind],
        technique=technique,
        state=gap.state_id,
        claimed_log_gain=gap.log_gain,
        evidence=gap.evidence,
        device_kind=device_kind,
        author="builtin",
        run=run,
        iteration=iteration,
    )


def _text(gap: Gap, op_class: str) -> str:
    where = f"{gap.technique} in {gap.state_name} ({op_class})"
    if gap.kind == "sequence":
        return f"For {op_class} in {gap.state_name}: {gap.explanation}. Try them in this order."
    if gap.kind == "fails":
        return f"{where} failed: {gap.explanation}. Check this condition before trying it."
    gain = math.exp(gap.log_gain or 0.0)
    verdict = {
        "overestimated": f"gains less than expected, about {gain:.2f}x",
        "underestimated": f"gains more than expected, about {gain:.2f}x",
        "confirmed": f"gains about {gain:.2f}x, as expected",
    }[gap.kind]
    return f"{where} {verdict}: {gap.explanation}."


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
        )
        for lesson in change.lessons
    )

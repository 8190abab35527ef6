"""Built-in parameter update: turn gaps into changes of the knowledge base, and say why in lessons.

Three changes act on later choices: a technique that gained where nobody listed it is listed there,
one that only ever broke kernels is deprecated there, and states that were found are added. Gains of
listed techniques need no change here: their evidence moves the posterior by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...harness.records import Outcome
from ...memory.knowledge.facts import comparable
from ...memory.knowledge.policy import unknown_technique
from ...memory.records import (
    NO_GAIN,
    Evidence,
    KnowledgeUpdate,
    Lesson,
    LessonKind,
    Optimization,
    PerformanceState,
    StateOptimization,
)
from ...tools.models.records import BUILTIN
from ..common.learned_notes import LEARNED
from ..records import Gap, GapAnalysis, WrittenLesson

KINDS: dict[str, LessonKind] = {
    "overestimated": "correction",
    "underestimated": "correction",
    "fails": "condition",
    "confirmed": "observation",
    "sequence": "composite",
}
LISTED_GAIN = 0.05
"""Measured log gain above which a technique is listed under the state (about 5 %)."""
PRIOR_SHARE = 0.5
"""Of the measured gain that a listed technique's prior takes: the luckiest ones are listed."""
PRIOR_STRENGTH = 1.0
DEPRECATING_TRIES = 2
"""Distinct candidates that must have failed, with none that passed, before a technique is
deprecated."""


@dataclass(frozen=True)
class Known:
    """What the knowledge base knew when the iteration was over."""

    listed: Mapping[str, Mapping[str, Optimization]]
    """Optimizations by state and technique."""
    techniques: Mapping[str, Optimization]
    """Description of every technique that the seed knows."""
    evidence: Sequence[Evidence]
    discovered: Sequence[PerformanceState] = ()
    """States that the iteration found."""
    described_by: Mapping[str, str] = field(default_factory=dict)
    """Who named and described those of them that stand in somebody's words, by id."""


def knowledge_update(
    analysis: GapAnalysis, known: Known, *, op_class: str, device_kind: str, run: str
) -> KnowledgeUpdate:
    """Return what the knowledge base should learn from one iteration's gaps."""

    def lesson(
        kind: LessonKind, text: str, state: str, author: str, gap: Gap | None = None
    ) -> Lesson:
        technique = (" then ".join(gap.techniques) or gap.technique) if gap else None
        return Lesson(
            text=text,
            kind=kind,
            technique=technique,
            state=state,
            op_class=op_class,
            claimed_log_gain=gap.log_gain if gap else None,
            evidence=gap.evidence if gap else (),
            device_kind=device_kind,
            author=author,
            run=run,
            iteration=analysis.iteration,
        )

    lessons = [
        lesson(
            "new_state",
            f"{op_class} reached a new state: {state.description}",
            state.id,
            known.described_by.get(state.id, BUILTIN),
        )
        for state in known.discovered
    ]
    optimizations = []
    kind: LessonKind
    for gap in analysis.gaps:
        failures = _failures(gap, known.evidence, op_class, device_kind)
        if len(failures) >= DEPRECATING_TRIES:
            kind, text = "deprecation", _refusal(gap, op_class, failures)
        else:
            kind, text = KINDS[gap.kind], _text(gap, op_class)
        lessons.append(lesson(kind, text, gap.state_id, gap.author, gap))
        if _deserves_listing(gap, known.listed):
            optimizations.append(_listing(gap, known.techniques, op_class, device_kind))
    return KnowledgeUpdate(
        run=run,
        iteration=analysis.iteration,
        states=tuple(known.discovered),
        optimizations=tuple(optimizations),
        lessons=tuple(lessons),
    )


def _failures(
    gap: Gap, evidence: Iterable[Evidence], op_class: str, device_kind: str
) -> dict[tuple[str, str | None], str]:
    """Return the outcome of every candidate that the technique broke here, none if one passed."""
    if gap.kind != "fails":
        return {}
    rows = [
        row
        for row in evidence
        if (row.state_before, row.technique, row.op_class)
        == (gap.state_id, gap.technique, op_class)
        and comparable(row.device_kind, device_kind)
    ]
    if any(row.outcome is Outcome.PASSED for row in rows):
        return {}
    return {
        (row.task_id, row.child_sha256): row.outcome
        for row in sorted(rows, key=lambda row: row.fact_id)
        if row.outcome.breaks_kernel
    }


def _deserves_listing(gap: Gap, listed: Mapping[str, Mapping[str, Optimization]]) -> bool:
    return (
        gap.kind != "sequence"
        and gap.log_gain is not None
        and gap.log_gain > LISTED_GAIN
        and gap.technique not in listed.get(gap.state_id, {})
    )


def _listing(
    gap: Gap, techniques: Mapping[str, Optimization], op_class: str, device_kind: str
) -> StateOptimization:
    base = techniques.get(gap.technique) or unknown_technique(gap.technique)
    return StateOptimization(
        state_id=gap.state_id,
        optimization=base.model_copy(
            update={
                "notes": f"{base.notes}{LEARNED}{op_class}: {gap.explained}.",
                "prior_log_gain": PRIOR_SHARE * (gap.log_gain or 0.0),
                "prior_strength": PRIOR_STRENGTH,
                "prior_evidence": gap.evidence,
            }
        ),
        device_kind=device_kind,
        revision=1,
        author=gap.author,
    )


def _refusal(gap: Gap, op_class: str, failures: Mapping[tuple[str, str | None], str]) -> str:
    outcomes = ", ".join(sorted(set(failures.values())))
    return (
        f'{gap.technique} in "{gap.state_name}" ({op_class}) is not to be tried again: '
        f"{len(failures)} candidates, none correct ({outcomes}). Last: {gap.explained}."
    )


def _text(gap: Gap, op_class: str) -> str:
    where = f'{gap.technique} in "{gap.state_name}" ({op_class})'
    if gap.kind == "sequence":
        # A model's own words say themselves whether the order matters.
        advice = "" if gap.cause or gap.condition else " Try them in this order."
        return f'For {op_class} in "{gap.state_name}": {gap.explained}.{advice}'
    if gap.kind == "fails":
        return f"{where} failed: {gap.explained}. Check this condition before trying it."
    if abs(gap.log_gain or 0.0) < NO_GAIN:
        return f"{where} gains nothing: {gap.explained}."
    gain = math.exp(gap.log_gain or 0.0)
    verdict = {
        "overestimated": f"gains less than expected, about {gain:.2f}x",
        "underestimated": f"gains more than expected, about {gain:.2f}x",
        "confirmed": f"gains about {gain:.2f}x, as expected",
    }[gap.kind]
    return f"{where} {verdict}: {gap.explained}."


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

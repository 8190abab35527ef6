"""What is known already, in words: what was tried on a kernel, techniques and lessons."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...memory.knowledge.policy.policy import Prospect
from ...memory.knowledge.states.conditions import KernelFacts, unmet
from ...memory.records.evidence import NO_GAIN, Step
from ...memory.records.lessons import Lesson
from ...memory.records.optimizations import Optimization
from ...memory.records.policy import ExpectedGain
from ..models.records import BUILTIN

MOST_TRIED = 8
MOST_LESSONS = 3
"""Lessons of a prompt: two or three that fit help, a list of all does harm."""
MOST_SETTINGS = 4
LONGEST_REASON = 200
"""Characters of a failure's reason."""


def gain_text(log_gain: float) -> str:
    """Return a log gain as a person reads it: `1.35x`."""
    return f"{math.exp(log_gain):.3g}x"


def measured_gain(log_gain: float) -> str:
    """Return what a step gained; said as no gain where that is within what a measurement moves."""
    if abs(log_gain) < NO_GAIN:
        return f"no gain ({math.exp(log_gain):.4g}x)"
    return gain_text(log_gain)


def parameters_text(parameters: Mapping[str, Any]) -> str:
    """Return parameter values as ` {"tile": 32}`; empty where there are none."""
    return f" {json.dumps(dict(parameters))}" if parameters else ""


def tried_text(
    steps: Iterable[Step], source_sha256: str, more: Callable[[Step], str] | None = None
) -> str:
    """Return what was tried on this very source and what came of it, the newest last.

    Repetitions of a technique with the same parameters and outcome are told once. `more` says what
    else is known of a step that made a kernel; it is asked of those that are told.
    """
    told: dict[tuple[str, str, str], Step] = {}
    for step in steps:
        if step.parent_sha256 != source_sha256:
            continue
        key = step.technique, parameters_text(step.parameters), step.outcome
        told.pop(key, None)
        told[key] = step
    lines = []
    for step in list(told.values())[-MOST_TRIED:]:
        also = more(step) if more and step.log_gain is not None else ""
        lines.append(
            f"- {step.technique}{parameters_text(step.parameters)}: {outcome_text(step)}"
            + (f" ({also})" if also else "")
        )
    return "\n".join(lines)


def outcome_text(step: Step) -> str:
    """Return what came of a step in a few words: its gain and what limits now, or the failure."""
    if step.log_gain is not None:
        moved = (
            f", limit {step.bottleneck_before} -> {step.bottleneck_after}"
            if step.bottleneck_after and step.bottleneck_after != step.bottleneck_before
            else ""
        )
        slower = " (slower)" if step.log_gain <= -NO_GAIN else ""
        return f"{measured_gain(step.log_gain)}{slower}{moved}"
    reason = " ".join(step.reason.split())
    if len(reason) > LONGEST_REASON:
        reason = reason[:LONGEST_REASON].rsplit(" ", 1)[0] + " ..."
    return f"failed: {step.outcome.replace('_', ' ')}" + (f": {reason}" if reason else "")


def technique_text(optimization: Optimization, parameters: bool = True) -> str:
    """Return a technique's card: what it does, when, when not, side effects, how."""
    lines = [
        f"{optimization.technique}: {optimization.description}",
        f"- applies when: {optimization.applies_when}",
        f"- avoid when: {optimization.avoid_when}",
        f"- side effects: {optimization.side_effects}",
        f"- notes: {optimization.notes}",
    ]
    if parameters and optimization.parameters:
        values = ", ".join(
            f"{name} {values}" for name, values in sorted(optimization.parameters.items())
        )
        lines.append(f"- values worth trying, the default first: {values}")
    return "\n".join(line for line in lines if not line.endswith(": "))


def expected_text(expected: ExpectedGain) -> str:
    """Return what the policy expects of a technique, and from how much experience."""
    text = (
        f"expected {gain_text(expected.mean_log)} when it passes "
        f"({expected.success_probability:.0%} of the time)"
    )
    if expected.trials < 0.5:
        return f"{text}; never tried"
    low, high = (gain_text(expected.mean_log + each * expected.std_log) for each in (-1, 1))
    tries = "try" if round(expected.trials) == 1 else "tries"
    return f"{text}; {low} to {high} by the {expected.trials:.0f} {tries} on the likest kernels"


def ceiling_text(log_gain: float, ceiling: float | None) -> str:
    """Return that a gain is more than can be had here; empty where it is not."""
    if ceiling is None or log_gain <= math.log(max(ceiling, 1.0)):
        return ""
    return f"; here at most {max(ceiling, 1.0):.3g}x, where every tensor is moved once"


def settings_text(prospect: Prospect) -> str:
    """Return what is expected of a technique's parameter values, the best first; empty where none
    was ever tried."""
    told = zip(prospect.settings, prospect.forecasts, strict=True)
    lines = [
        f"- {json.dumps(setting)}: expected {gain_text(forecast.mean)}"
        for setting, forecast in told
        if setting and forecast.tries >= 0.5
    ]
    return "\n".join(lines[:MOST_SETTINGS])


def lessons_text(
    lessons: Sequence[Lesson],
    *,
    state: str,
    op_class: str,
    device_kind: str,
    techniques: Iterable[str] = (),
    facts: KernelFacts | None = None,
) -> str:
    """Return the few lessons that fit the case best, contested ones marked.

    A lesson counts that was learned on comparable devices, whose class of operation and technique,
    where it names them, are those of the case, and of which no condition is known not to hold.
    `techniques` empty: of any technique. Those fit best that nothing contests, that name technique,
    class and state, and that most evidence bears out.
    """
    wanted = set(techniques)
    found = []
    for lesson in lessons:
        if (lesson.device_kind == "simulated") != (device_kind == "simulated"):
            continue
        if lesson.op_class not in (None, op_class):
            continue
        if lesson.kind == "observation" and lesson.author == BUILTIN:
            continue  # by rule it says that an expectation held
        named = set((lesson.technique or "").split(" then ")) - {""}
        if wanted and named and not named & wanted:
            continue
        if unmet(lesson.conditions, facts or {}):
            continue
        fitting = (
            lesson.contested,
            not named,
            lesson.op_class is None,
            lesson.state != state,
            lesson.opposing - lesson.supporting,
            -lesson.created,
        )
        found.append((fitting, lesson))
    found.sort(key=lambda item: item[0])
    return "\n".join(lesson_line(lesson) for _, lesson in found[:MOST_LESSONS])


def lesson_line(lesson: Lesson) -> str:
    """Return one lesson on one line, with what evidence says of it."""
    contested = " (contested by later evidence)" if lesson.contested else ""
    where = "".join(f" where {condition}," for condition in lesson.conditions)
    text = " ".join(lesson.text.split())
    return f"- {lesson.kind}{contested}:{where} {text}{counts_text(lesson)}"


def counts_text(lesson: Lesson) -> str:
    """Return how much evidence bears a lesson out and how much does not; empty where none does."""
    if lesson.supporting + lesson.opposing < 2:
        return ""
    return f" (tries: {lesson.supporting} for it, {lesson.opposing} against)"

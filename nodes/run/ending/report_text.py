"""The run's report as plain text: the path, the refusals, the lessons, each with its numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....harness.records.outcomes import Outcome, outcome_in_words
from ....memory.records.evidence import Step
from ....memory.records.lessons import Lesson
from ....memory.run.ledger import RoleTotals
from ....tools.models.records import BUILTIN
from ...common.history.authors import roles_in_words
from ...records.kernels import KNOWN_KERNEL
from ...records.result import RunResult


def report_text(
    result: RunResult,
    steps: Sequence[Step],
    lessons: Sequence[Lesson],
    spending: Sequence[RoleTotals] = (),
) -> str:
    """Return the whole report, newline-terminated."""
    parts = [
        _headline(result),
        _path(result),
        _shapes(result),
        _refused(steps),
        _lost(steps),
        "\n".join(f"Note: {note}" for note in result.notes),
        _lessons(lessons),
        _authors(result),
        _model_calls(spending),
        f"Best kernel: {result.best_source}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(result: RunResult) -> str:
    low, high = result.gain_ci
    # A time model gives a number, no spread: two equal ends would read as certainty.
    within = f", interval {low:.2f} to {high:.2f}" if low < high else ""
    outcomes = ", ".join(f"{name} {count}" for name, count in sorted(result.outcomes.items()))
    return "\n".join(
        (
            f"{result.task} on {result.gpu}{_policy(result)}: every time below is "
            f"{result.provenance}",
            f"  initial {result.initial_us:.2f} us{_cycles(result.initial_cycles)} "
            f"({result.bottleneck_before})",
            f"  best    {result.best_us:.2f} us{_cycles(result.best_cycles)} "
            f"({result.bottleneck_after})",
            f"  gain    {result.gain:.2f}x{within} ({result.outcome})",
            *_since_it_began(result),
            *_beside_pytorch(result.baselines),
            *_beside_the_bound(result),
            f"  {result.evaluations} evaluations ({outcomes}{_taken_over(result)}), "
            f"{result.model_calls} model calls, {result.tokens} tokens{_money(result)}",
        )
    )


def _since_it_began(result: RunResult) -> Iterator[str]:
    """Return what the search itself gained, where it began with a known kernel."""
    if result.start_us is not None:
        yield (
            f"  began   {result.start_us:.2f} us, with the kernel {result.began_with}: "
            f"{result.initial_us / result.start_us:.2f}x the initial one; the search gained "
            f"{result.start_us / result.best_us:.2f}x on it"
        )


def _taken_over(result: RunResult) -> str:
    return f"; {result.taken_over} taken over from other runs" if result.taken_over else ""


def _policy(result: RunResult) -> str:
    return "" if result.policy == "kernelblaster" else f" by {result.policy}"


def _cycles(elapsed: float | None) -> str:
    return ", cycles not counted" if elapsed is None else f", {elapsed:,.0f} cycles"


def _beside_pytorch(baselines: Mapping[str, float]) -> Iterator[str]:
    names = {"eager_us": "eager", "compile_us": "torch.compile"}
    times = ", ".join(f"{names[key]} {baselines[key]:.2f} us" for key in names if key in baselines)
    if times:
        yield (
            f"  PyTorch {times}: the best is {baselines['speedup']:.2f}x the faster one, interval "
            f"{baselines['speedup_low']:.2f} to {baselines['speedup_high']:.2f}"
        )


def _beside_the_bound(result: RunResult) -> Iterator[str]:
    bound = result.bound
    if bound is None:
        return
    yield f"  bound   {bound}"
    base = "PyTorch" if result.baselines else "the initial kernel"
    score = "" if result.score is None else f", score {result.score:.3f} (0.5 is {base}'s time)"
    yield f"          the best reaches {bound.share(result.best_us):.1%} of it{score}"
    if result.ended:
        yield f"  {result.ended}"


def _authors(result: RunResult) -> str:
    """Return who did what; steps that the same three did are told together."""
    if not result.models:
        return ""  # Of a run that an earlier version made.
    said = (result.initial_author, *result.lesson_authors)
    together: dict[tuple[str, str, str], list[str]] = {}
    for step in result.steps:
        place = f"{step.iteration + 1}.{step.rollout + 1}.{step.step + 1}"
        together.setdefault((step.state, step.choice, step.source), []).append(place)
    named = {*result.models.values(), *said, *(name for names in together for name in names)}
    if named <= {BUILTIN}:
        return "Who did what: the built-in reasoners everything."
    lines = [
        "Who did what:",
        f"  asked: {roles_in_words(result.models) or 'no model'}"
        f"{'; built in the rest' if BUILTIN in result.models.values() else ''}",
        f"  initial kernel: {result.initial_author or 'not noted'}",
    ]
    for (state, choice, source), places in together.items():
        lines.append(
            f"  {'step' if len(places) == 1 else 'steps'} {', '.join(places)}: state {state}, "
            f"choice {choice}, source {source}"
        )
    for author, count in Counter(result.lesson_authors).items():
        lines.append(f"  {count} {'lesson' if count == 1 else 'lessons'}: {author}")
    return "\n".join(lines)


def _model_calls(spending: Sequence[RoleTotals]) -> str:
    if not spending:
        return ""
    rows = [
        f"  {each.role} ({each.model}): {each.calls} calls, {each.malformed} of them malformed, "
        f"{each.failed} refused{_asked_before(each)}; {each.tokens_in} tokens in "
        f"({each.tokens_cached} cached), {each.tokens_out} out"
        + ("" if each.money is None else f", ${each.money:.4f}")
        for each in spending
    ]
    return "\n".join(("Model calls:", *rows))


def _asked_before(each: RoleTotals) -> str:
    return f", {each.reused} more answered as before" if each.reused else ""


def _money(result: RunResult) -> str:
    return "" if result.money is None else f", ${result.money:.4f}"


def _path(result: RunResult) -> str:
    if not result.path:
        return "No technique made the initial kernel faster."
    rows = ["Path of the winner:"]
    several = len({step.launch for step in result.path if step.launch}) > 1
    reached = 1.0
    for number, step in enumerate(result.path, start=1):
        reached *= step.gain
        if step.technique == KNOWN_KERNEL:
            settings = f" (found before by {', '.join(step.names)})" if step.names else ""
        else:
            aimed = f" of {step.launch}" if several and step.launch else ""
            settings = f"{aimed}{_settings(step.parameters)}"
        rows.append(
            f"  {number}. {step.technique}{settings}: "
            f"{step.gain:.2f}x, {reached:.2f}x so far"
        )
    return "\n".join(rows)


def _shapes(result: RunResult) -> str:
    if not result.shapes:
        return ""
    rows = [f"Shapes that the search never saw ({_holding(result)}):"]
    for each in result.shapes:
        sizes = ", ".join(f"{name}={size}" for name, size in each.dimensions.items())
        if each.microseconds is None:
            found = outcome_in_words(each.outcome, each.reason) if each.ran else each.reason
            rows.append(f"  {sizes}: {found}")
        else:
            beside = f", {each.speedup:.2f}x PyTorch" if each.speedup else ""
            rows.append(f"  {sizes}: holds, {each.microseconds:.2f} us{beside}")
    return "\n".join(rows)


def _holding(result: RunResult) -> str:
    ran = [each for each in result.shapes if each.ran]
    if not ran:
        return "it ran at none of them"
    return f"it holds at {sum(each.holds for each in ran)} of {len(ran)}"


def _refused(steps: Sequence[Step]) -> str:
    refused = [step for step in steps if step.log_gain is None and step.reason]
    unique = dict.fromkeys((step.technique, step.outcome, step.reason) for step in refused)
    unjudged = [each for each in unique if each[1] == Outcome.UNSUPPORTED.value]
    wrong = [each for each in unique if each[1] != Outcome.UNSUPPORTED.value]
    return "\n\n".join(
        "\n".join([title, *(f"  {name}: {outcome_in_words(*said)}" for name, *said in rows)])
        for title, rows in (
            ("Refused:", wrong),
            ("Not judged: this device cannot run or time them, a real GPU may:", unjudged),
        )
        if rows
    )


def _lost(steps: Sequence[Step]) -> str:
    rows = dict.fromkeys(
        f"  {step.technique}{_settings(step.parameters)}: {math.exp(step.log_gain or 0.0):.2f}x "
        f"({step.lost})"
        for step in steps
        if step.lost
    )
    return "\n".join(["Slower than what they were made of:", *rows]) if rows else ""


def _settings(parameters: Mapping[str, Any]) -> str:
    told = ", ".join(f"{key}={value}" for key, value in sorted(parameters.items()))
    return f" ({told})" if told else ""


def _lessons(lessons: Sequence[Lesson]) -> str:
    if not lessons:
        return ""
    rows = []
    for lesson in lessons:
        gain = (
            ""
            if lesson.claimed_log_gain is None
            else f" [{math.exp(lesson.claimed_log_gain):.2f}x]"
        )
        by = "" if lesson.author == BUILTIN else f" (by {lesson.author})"
        rows.append(f"  {lesson.kind}{gain}: {lesson.text}{by}")
    return "\n".join([f"Lessons written ({len(lessons)}):", *rows])

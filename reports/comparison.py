"""Two runs side by side: what each came to, how sure that is, by which way, and what differed."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from . import words
from .reading import RunAccount

_OWN = {"run", "run_id", "forked_from", "device_why"}
"""What two plans differ in whatever is compared."""


class Side(NamedTuple):
    """A figure of both runs; empty where one has none."""

    name: str
    first: str
    second: str


class RunComparison(NamedTuple):
    """What two runs have to do with each other."""

    sentence: str
    figures: list[Side]
    paths: list[Side]
    """The techniques of each winner, in order; what both did at one place stands in one row."""
    settings: list[Side]
    """Those of their plans that differ."""
    ratio: float | None
    """Speed of the second's best over the first's; None where their times cannot be compared."""
    ratio_interval: tuple[float, float] | None
    """Of the ratio, from the intervals of both gains; None where these have no width."""


def compare_runs(first: RunAccount, second: RunAccount) -> RunComparison:
    """Return what a person asks of two runs."""
    ratio = _ratio(first, second)
    return RunComparison(
        sentence=_sentence(first, second, ratio),
        figures=[
            Side(name, left, right)
            for (name, left), (_, right) in zip(_figures(first), _figures(second), strict=True)
            if {left, right} != {words.NONE}
        ],
        paths=_paths(first, second),
        settings=differing(*(run.plan.model_dump(mode="json", exclude=_OWN)
                             for run in (first, second))),
        ratio=ratio,
        ratio_interval=_interval(first, second, ratio),
    )


def _figures(run: RunAccount) -> list[tuple[str, str]]:
    result, best = run.result, run.best
    provenance = f" {run.initial.provenance}" if run.initial else ""
    speedup = result.baselines.get("speedup") if result else None
    outcomes: dict[str, int] = {}
    for verdict in run.verdicts:
        outcomes[verdict.outcome] = outcomes.get(verdict.outcome, 0) + 1
    return [
        ("task", run.name),
        ("policy", run.plan.policy),
        ("outcome", words.plain(run.status)),
        ("initial kernel", _time(run.initial.microseconds if run.initial else None, provenance)),
        ("best kernel", _time(best[1] if best else None, provenance)),
        ("gain", words.gain(run.gain)),
        ("interval of the gain", _within(result.gain_ci if result else None)),
        ("over PyTorch's faster way", words.gain(speedup)),
        ("of the speed of light", words.share(run.bound_us / best[1])
         if run.bound_us and best else words.NONE),
        ("unseen shapes where it holds", _shapes(run)),
        ("evaluations", str(len(run.verdicts))),
        ("of them", ", ".join(f"{count} {words.plain(name)}"
                              for name, count in sorted(outcomes.items())) or words.NONE),
        ("steps", str(len(run.steps))),
        ("model calls", words.count(run.spent.calls if run.spent else 0)),
        ("tokens", words.count(run.spent.tokens if run.spent else 0)),
        ("money", words.money(run.spent.money if run.spent else None)),
        ("working time", words.seconds(run.wall_seconds)),
        ("of the device", words.seconds(run.device_seconds)),
    ]  # fmt: skip


def _shapes(run: RunAccount) -> str:
    shapes = [each for each in run.result.shapes if each.ran] if run.result else []
    return f"{sum(each.holds for each in shapes)} of {len(shapes)}" if shapes else words.NONE


def _time(value: float | None, provenance: str) -> str:
    return words.NONE if value is None else f"{words.microseconds(value)}{provenance}"


def _within(ends: tuple[float, float] | None) -> str:
    return (words.interval(*ends) or words.NONE) if ends else words.NONE


def _paths(first: RunAccount, second: RunAccount) -> list[Side]:
    left, right = _path(first), _path(second)
    length = max(len(left), len(right))
    left += [""] * (length - len(left))
    right += [""] * (length - len(right))
    return [
        Side(str(number), *pair)
        for number, pair in enumerate(zip(left, right, strict=True), 1)
    ]


def _path(run: RunAccount) -> list[str]:
    way = run.ways.get(run.best[0], ()) if run.best else ()
    return [
        f"{step.technique}{f' ({said})' if (said := words.parameters(step.parameters)) else ''} "
        f"{words.log_gain(step.log_gain)}"
        for step in way
    ]


def differing(first: dict[str, Any], second: dict[str, Any]) -> list[Side]:
    """Return where two documents differ, by the names of the fields."""
    left, right = _flat(first), _flat(second)
    return [
        Side(name, left.get(name, ""), right.get(name, ""))
        for name in sorted({*left, *right})
        if left.get(name) != right.get(name)
    ]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = "" if value is None else str(value)
    return found


def _ratio(first: RunAccount, second: RunAccount) -> float | None:
    if first.best is None or second.best is None or not _comparable(first, second):
        return None
    return first.best[1] / second.best[1]


def _comparable(first: RunAccount, second: RunAccount) -> bool:
    """Say whether two runs' times are of one task, one GPU and one kind of number."""
    return (
        first.initial is not None
        and second.initial is not None
        and first.summary is not None
        and second.summary is not None
        and first.summary.id == second.summary.id
        and first.plan.identity == second.plan.identity
        and first.initial.provenance == second.initial.provenance
    )


def _interval(
    first: RunAccount, second: RunAccount, ratio: float | None
) -> tuple[float, float] | None:
    """Return the interval of a ratio of two gains that were measured apart from each other."""
    if ratio is None or first.result is None or second.result is None:
        return None
    ends = (first.result.gain_ci, second.result.gain_ci)
    widths = [math.log(high / low) / 2 for low, high in ends]
    half = math.hypot(*widths)
    return (ratio * math.exp(-half), ratio * math.exp(half)) if half > 0 else None


def _sentence(first: RunAccount, second: RunAccount, ratio: float | None) -> str:
    if ratio is None:
        return (
            "Their times are not set against each other: that takes one task, one device with its "
            "versions, and a kernel that passed in both."
        )
    interval = _interval(first, second, ratio)
    if interval and interval[0] <= 1.0 <= interval[1]:
        return (f"Their best kernels are as fast as each other, as far as was measured: the "
                f"second's speed is {words.gain(ratio)} the first's "
                f"({words.interval(*interval)}).")  # fmt: skip
    within = f" ({words.interval(*interval)})" if interval else ""
    if abs(math.log(ratio)) < 0.005:
        return "Their best kernels are equally fast."
    which, times = ("second", ratio) if ratio > 1 else ("first", 1 / ratio)
    if interval and which == "first":
        within = f" ({words.interval(1 / interval[1], 1 / interval[0])})"
    other = "first" if which == "second" else "second"
    return f"The {which}'s best kernel is {words.gain(times)} as fast as the {other}'s{within}."

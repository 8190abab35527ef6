"""The tables of a bench: results.json, results.md and results.csv over all runs that are over."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from pydantic import Field

from ..harness.errors import UserError, in_shell, unwritten
from ..harness.files import write_atomically
from ..harness.metrics import (
    Against,
    Difference,
    Interval,
    Summary,
    TaskOutcome,
    compare_policies,
    counted,
    mean_interval,
    summarize,
)
from ..harness.records.identity import sha256_of_json
from ..harness.records.record import Record
from ..harness.suites.workloads import accepted
from .directory import read_outcomes
from .markdown_parts import bullets, table, text
from .records import SuiteLock

THRESHOLDS = (0.5, 0.8, 1.0, 1.5, 2.0, 5.0, 10.0)
"""Of fast_p."""
SHOWN = (1.0, 1.5, 2.0)
"""Of these, in the tables that a person reads."""
UNLIKE = frozenset({"seconds", "device_seconds"})
"""Of an outcome, what two runs with the same seed do not have in common."""


class PolicyFigures(Record):
    """What one variant came to, against one base."""

    summary: Summary
    mean: Interval
    """Geometric mean over all runs, with its interval over tasks."""


class Results(Record):
    """results.json: what all runs that are over come to together."""

    suite: str
    planned: int
    """Runs in the plan."""
    finished: int
    """Runs that are over."""
    against: Against
    """What the tables for people set times beside."""
    policies: tuple[PolicyFigures, ...]
    """By base and, in it, in the order of the plan; variants without a run that is over are not
    there."""
    differences: tuple[Difference, ...]
    """Of each two variants, on the tasks that both have."""
    outcomes: tuple[TaskOutcome, ...]
    """In the order of the plan."""
    reasons: dict[str, str]
    """Why runs failed, by FOLDER/seed-S/TASK."""
    began: dict[str, str] = Field(default_factory=dict)
    """Which runs' search began with a kernel of an earlier run, and with which, by the same."""
    numbers_sha256: str
    """Of all that two benches with the same seeds have in common: all numbers but times spent."""


def results_of(directory: Path, lock: SuiteLock, *, compare: bool = True) -> Results:
    """Compute the tables of a bench, whole or not; without `compare` no differences.

    Raises:
        UserError: the end of a run cannot be read.
    """
    found = read_outcomes(directory, lock)
    outcomes = [ended.outcome for _, ended in found]
    bases = bases_of(outcomes)
    sides = [
        [each for each in outcomes if each.policy == variant.name] for variant in lock.variants
    ]
    present = [side for side in sides if side]
    return Results(
        suite=lock.suite,
        planned=len(lock.runs),
        finished=len(found),
        against=bases[0],
        policies=tuple(
            PolicyFigures(
                summary=summarize(side, against, THRESHOLDS), mean=mean_interval(side, against)
            )
            for against in bases for side in present
        ),
        differences=tuple(
            compare_policies(one, other, against)
            for against in bases for one, other in combinations(present, 2)
            if compare and {each.task for each in one} & {each.task for each in other}
        ),
        outcomes=tuple(outcomes),
        reasons={run.place: ended.reason for run, ended in found if not ended.outcome.valid},
        began={run.place: ended.began for run, ended in found if ended.began},
        numbers_sha256=sha256_of_json(
            [each.model_dump(mode="json", exclude=set(UNLIKE)) for each in outcomes]
        ),
    )  # fmt: skip


def bases_of(outcomes: Sequence[TaskOutcome]) -> tuple[Against, ...]:
    """Return what times can be set beside: PyTorch, where it was measured, and the first kernel."""
    eager = any(each.eager_us is not None for each in outcomes)
    compiled = any(each.compile_us is not None for each in outcomes)
    if eager and compiled:
        return ("pytorch", "eager", "compile", "initial")
    return ("eager", "initial") if eager else ("initial",)


def write_results(directory: Path, lock: SuiteLock) -> Results:
    """Write the three files anew, and return what is in them.

    Raises:
        UserError: the directory cannot be written.
    """
    results = results_of(directory, lock)
    texts = {
        "results.json": results.model_dump_json(indent=2) + "\n",
        "results.md": as_markdown(directory, lock, results),
        "results.csv": as_csv(results),
    }
    for name, content in texts.items():
        try:
            write_atomically(directory / name, content.encode())
        except OSError as error:
            raise UserError(unwritten(directory / name, error)) from error
    return results


Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Titles and rows."""

_BASES = {
    "pytorch": "the faster of PyTorch eager and torch.compile",
    "eager": "PyTorch eager",
    "compile": "torch.compile",
    "initial": "the initial kernel",
}


def base_in_words(against: Against) -> str:
    """Return what times are set beside."""
    return _BASES[against]


def policy_table(results: Results) -> Table:
    """Return a row for each variant, failures in every figure."""
    titles = (
        "policy", "runs", "held", "geometric mean", "median (quartiles)",
        *(f"fast_{p:g}" for p in SHOWN), "median S", "evaluations", "tokens", "money", "minutes",
    )  # fmt: skip
    rows = []
    for each in results.policies:
        told = each.summary
        if told.against != results.against:
            continue
        ratios = told.ratios
        rows.append((
            told.policy,
            str(told.runs),
            f"{told.valid}",
            f"{each.mean.estimate:.2f}x ({each.mean.low:.2f} to {each.mean.high:.2f})",
            f"{ratios.median:.2f}x ({ratios.lower_quartile:.2f} to {ratios.upper_quartile:.2f})",
            *(f"{told.fast[p]:.0%}" for p in SHOWN),
            _score_in_words(told),
            f"{told.evaluations}",
            f"{told.tokens:,}",
            "" if told.money is None else f"${told.money:.2f}",
            f"{told.minutes:.1f}",
        ))  # fmt: skip
    return titles, rows


def _score_in_words(told: Summary) -> str:
    """Return the median of S, and of how many runs where some have none."""
    if told.score is None:
        return ""
    of = "" if told.score.count == told.runs else f" (of {told.score.count})"
    return f"{told.score.median:.2f}{of}"


def difference_table(results: Results) -> Table:
    """Return a row for each two variants."""
    rows: list[tuple[str, ...]] = [
        (
            each.first, each.second, str(each.tasks),
            f"{each.ratio.estimate:.2f} ({each.ratio.low:.2f} to {each.ratio.high:.2f})",
            f"{each.fast.estimate:+.0%} ({each.fast.low:+.0%} to {each.fast.high:+.0%})",
            "yes" if each.tells else "no",
        )
        for each in results.differences if each.against == results.against
    ]  # fmt: skip
    titles = ("first", "second", "tasks", "ratio of means", "difference of fast_1", "differ")
    return titles, rows


def task_table(lock: SuiteLock, results: Results) -> Table:
    """Return a row for each task: what each variant came to, over its seeds."""
    by_place: dict[tuple[str, str], list[TaskOutcome]] = {}
    for each in results.outcomes:
        by_place.setdefault((each.task, each.policy), []).append(each)
    names = [variant.name for variant in lock.variants]
    rows = [
        (task.name, *(_cell(by_place.get((task.name, name), []), results.against)
                      for name in names))
        for task in lock.tasks
    ]  # fmt: skip
    return ("task", *names), rows


def _cell(outcomes: Sequence[TaskOutcome], against: Against) -> str:
    told = []
    for each in outcomes:
        held = "" if each.valid else f" {each.outcome.replace('_', ' ')}"
        told.append(f"{counted(each, against):.2f}x{held}")
    return ", ".join(told)


def as_markdown(directory: Path, lock: SuiteLock, results: Results) -> str:
    """Return results.md."""
    context = lock.context
    caps = context.budgets.model_dump(exclude_none=True)
    told = ", ".join(f"{value:g} {name.replace('_', ' ')}" for name, value in caps.items())
    origin = "simulated" if lock.device.kind == "simulated" else "measured"
    parts = [
        f"# {text(lock.suite)}: {results.finished} of {results.planned} runs",
        f"Times are {origin}, on {lock.device.gpu}, and set beside "
        f"{base_in_words(results.against)}. What failed counts as its initial kernel does, 1.0 at "
        "best, in every figure. Intervals are of 95 %, drawn over tasks. Each run may use at most: "
        f"{told or 'what its loops take'}.",
        "## Policies",
        table(*policy_table(results)),
    ]
    if results.differences:
        parts += ["## Between policies", table(*difference_table(results))]
    parts += ["## Tasks", table(*task_table(lock, results))]
    if results.reasons:
        reasons = [f"{place}: {why}" for place, why in results.reasons.items()]
        parts += ["## What failed", bullets(reasons)]
    if results.began:
        told = "Their gains are over the plain first kernel all the same:"
        known = [f"{place}: with the kernel {which}" for place, which in results.began.items()]
        parts += ["## Began with a kernel of an earlier run", told, bullets(known)]
    if lock.left_out:
        left = [f"{each.name}: {each.reason}" for each in lock.left_out]
        parts += ["## Left out of the suite", bullets(left)]
    if theirs := [task for task in lock.tasks if task.tolerance]:
        ours = "Verdicts are by this program's tolerances; the origin of these tasks accepts:"
        said = [f"{task.name}: {accepted(task.tolerance)}" for task in theirs]
        parts += ["## Tolerances of the origin", ours, bullets(said)]
    versions = {**lock.versions, **lock.device.model_dump()}
    parts += [
        "## Versions",
        bullets(f"{name.replace('_', ' ')}: {value}" for name, value in versions.items()),
        f"Numbers: {results.numbers_sha256}. All settings are in suite.json; this bench goes on, "
        f"and is shown again, with `kernelblaster bench {in_shell(directory)}`; its winners are "
        f"measured again with `kernelblaster rerun {in_shell(directory)}`.",
    ]
    return "\n\n".join(parts) + "\n"


def as_csv(results: Results) -> str:
    """Return results.csv: a row for each run that is over."""
    out = io.StringIO()
    names = [*TaskOutcome.model_fields, "counted"]
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for each in results.outcomes:
        row: dict[str, Any] = each.model_dump(mode="json")
        row["outcomes"] = json.dumps(row["outcomes"])
        writer.writerow(row | {"counted": counted(each, results.against)})
    return out.getvalue()



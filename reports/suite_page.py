"""The report of a suite as HTML: policies side by side with intervals, tasks, analyses, winners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..bench.claims import claims_in, embedded
from ..bench.directory import read_outcomes, read_suite
from ..bench.records import Ended, PlannedRun, SuiteLock
from ..bench.results import (
    PolicyFigures,
    Results,
    base_in_words,
    bases_of,
    difference_table,
    policy_table,
    results_of,
    task_table,
)
from ..harness.errors import UserError, in_shell
from ..harness.metrics import Against, Difference, TaskOutcome, counted, fast_p
from . import words
from .page import render_page
from .plots import SERIES, Plot, log_axis, plain, shares_plot
from .reading import RunAccount, read_run
from .runs_page import RunRow
from .summary import Tile
from .together import curves, group_views

THRESHOLDS = tuple(round(0.5 * 1.1**place, 3) for place in range(48))
"""Of fast_p, as a curve: from 0.5 to 44 times as fast."""


def suite_html(directory: Path) -> str:
    """Return the report of a suite, finished or not.

    Raises:
        UserError: it is no suite's directory, or what it holds is damaged.
    """
    lock = read_suite(directory)
    ended = read_outcomes(directory, lock)
    results = results_of(directory, lock) if ended else None
    notes = _notes(lock, ended)
    rows = list(_rows(directory, ended, notes))
    groups: dict[str, list[RunAccount]] = {each.name: [] for each in lock.variants}
    for run, row in rows:
        groups[run.variant].append(row.run)
    present = {name: runs for name, runs in groups.items() if runs}
    comparisons = _comparisons(lock, results) if results else []
    shown, views = curves(present), group_views(present)
    title = f"{lock.suite} on {lock.device.gpu}"
    said = _sentence(lock, results)
    return render_page(
        "suite.html",
        f"{title}: {len(ended)} of {len(lock.runs)} runs",
        [*comparisons, *shown, *(plot for view in views for plot in view.plots)],
        kicker="report of a suite", name=lock.suite, on=lock.device.gpu,
        status=f"{len(ended)} of {len(lock.runs)} runs are over; times are "
               f"{'simulated' if lock.device.kind == 'simulated' else 'measured'}",
        sentence=said, tiles=_tiles(lock, results), comparisons=comparisons,
        tables=_tables(lock, results) if results else [], curves=shown, groups=views,
        notes=notes, rows=[row for _, row in rows], facts=_facts(directory, lock),
        claims=embedded(claims_in(directory)) if ended else "",
    )  # fmt: skip


def _rows(
    directory: Path, ended: Sequence[tuple[PlannedRun, Ended]], notes: list[str]
) -> Iterator[tuple[PlannedRun, RunRow]]:
    """Yield the runs that left a directory; one that cannot be read is noted, and hides none."""
    for run, end in ended:
        place = directory / end.run
        if not end.run or not place.is_dir():
            continue
        try:
            account = read_run(place, whole=False)
        except UserError as error:
            notes.append(f"{run.label} cannot be told in detail: {error}")
            continue
        yield run, RunRow(account, run.label, end.reason)


def _sentence(lock: SuiteLock, results: Results | None) -> str:
    if results is None:
        return "No run is over yet."
    figures = [each for each in results.policies if each.summary.against == results.against]
    best = max(figures, key=lambda each: each.mean.estimate)
    base = base_in_words(results.against)
    said = (
        f"Over {words.counted(len(lock.tasks), 'task')}, {best.summary.policy} is "
        f"{words.gain(best.mean.estimate)} as fast as {base} "
        f"({words.gain(best.mean.low)} to {words.gain(best.mean.high)}; {best.summary.valid} of "
        f"{words.counted(best.summary.runs, 'run')} held)."
    )
    if len(figures) == 1:
        return said
    told = [
        each.second if each.first == best.summary.policy else each.first
        for each in results.differences
        if each.against == results.against and each.tells
        and best.summary.policy in (each.first, each.second)
    ]  # fmt: skip
    if not told:
        return f"{said} No other policy differs from it by more than chance."
    return f"{said} It differs by more than chance from {', '.join(told)}."


def _tiles(lock: SuiteLock, results: Results | None) -> list[Tile]:
    outcomes = results.outcomes if results else ()
    valid = sum(each.valid for each in outcomes)
    money = [each.money for each in outcomes if each.money is not None]
    return [
        Tile("tasks", str(len(lock.tasks)), words.counted(len(lock.seeds), "seed")),
        Tile("policies", str(len(lock.variants)), ", ".join(each.name for each in lock.variants)),
        Tile("runs that held", f"{valid} of {len(outcomes)}",
             f"{len(lock.runs)} planned"),
        Tile("candidates", words.count(sum(each.evaluations for each in outcomes))),
        Tile("tokens", words.count(sum(each.tokens for each in outcomes)),
             words.money(sum(money)) if money else "no price"),
        Tile("time spent", words.seconds(sum(each.seconds for each in outcomes)),
             f"{words.seconds(sum(each.device_seconds for each in outcomes))} of the device"),
    ]  # fmt: skip


def _comparisons(lock: SuiteLock, results: Results) -> list[Plot]:
    found = [_means_plot(results)]
    differences = [each for each in results.differences if each.against == results.against]
    if differences:
        found.append(_differences_plot(differences))
    for against in bases_of(results.outcomes):
        found.append(_fast_plot(lock, results, against))
    found.append(_tasks_plot(lock, results))
    return found


def _means_plot(results: Results) -> Plot:
    """Return the geometric mean of each policy with its interval."""
    shown = [each for each in results.policies if each.summary.against == results.against]
    shown.sort(key=lambda each: each.mean.estimate)
    return _intervals_plot(
        "means", "Geometric mean over all runs",
        f"How many times as fast as {base_in_words(results.against)}, with intervals of 95 % drawn "
        "over tasks. What failed is in: it counts as its initial kernel, 1.0 at best.",
        "times as fast",
        [_mean_row(each) for each in shown],
    )  # fmt: skip


Estimate = tuple[str, float, float, float]
"""A name, an estimate, and the ends of its interval."""


def _mean_row(figures: PolicyFigures) -> Estimate:
    mean = figures.mean
    return figures.summary.policy, mean.estimate, mean.low, mean.high


def _differences_plot(differences: Sequence[Difference]) -> Plot:
    """Return the ratio of each two policies with its interval."""
    return _intervals_plot(
        "differences", "Policies in pairs, on the same tasks",
        "Ratio of geometric means over the tasks that both have, with intervals of 95 % drawn "
        "over tasks; where one of six tasks or more leaves out 1, the two differ.",
        "first / second",
        [(f"{each.first} / {each.second}", each.ratio.estimate, each.ratio.low, each.ratio.high)
         for each in reversed(differences)],
    )  # fmt: skip


def _intervals_plot(
    name: str, title: str, caption: str, axis: str, rows: Sequence[Estimate]
) -> Plot:
    names = [plain(row[0]) for row in rows]
    middles = [row[1] for row in rows]
    ends = [end for row in rows for end in row[2:]]
    return Plot(
        name, title, caption,
        [{"type": "scatter", "mode": "markers", "y": names, "x": middles,
          "marker": {"color": "var(--accent)", "size": 10},
          "error_x": {"type": "data", "symmetric": False, "color": "var(--accent)",
                      "array": [row[3] - row[1] for row in rows],
                      "arrayminus": [row[1] - row[2] for row in rows]},
          "hovertemplate": "%{y}: %{x:.3g}×<extra></extra>"}],
        {"xaxis": log_axis(axis, [*ends, 1.0]), "yaxis": {"type": "category"},
         "showlegend": False,
         "shapes": [{"type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1, "yref": "paper",
                     "line": {"dash": "dot", "color": "var(--faint)", "width": 2}}]},
        ("policies", axis, "interval"),
        [(row[0], words.gain(row[1]), f"{words.gain(row[2])} to {words.gain(row[3])}")
         for row in reversed(rows)],
        120 + 34 * len(rows),
    )  # fmt: skip


def _fast_plot(lock: SuiteLock, results: Results, against: Against) -> Plot:
    sides = _by_policy(lock, results.outcomes)
    return shares_plot(
        f"fast-{against}", f"fast_p against {base_in_words(against)}",
        "Share of all runs whose kernel held and is more than p times as fast; runs that failed "
        "are in the denominator.", "p, times as fast",
        THRESHOLDS,
        {name: [fast_p(side, p, against) for p in THRESHOLDS] for name, side in sides.items()},
    )  # fmt: skip


def _tasks_plot(lock: SuiteLock, results: Results) -> Plot:
    """Return what each policy came to on each task."""
    sides = _by_policy(lock, results.outcomes)
    tasks = [task.name for task in lock.tasks]
    data = [
        {"type": "scatter", "mode": "markers", "name": plain(name),
         "y": [plain(each.task) for each in side],
         "x": [counted(each, results.against) for each in side],
         "text": [words.plain(each.outcome) for each in side],
         "marker": {"color": SERIES[place % 8], "size": 10, "symbol": [
             "circle" if each.valid else "x" for each in side]},
         "hovertemplate": "%{y}: %{x:.3g}×, %{text}<extra>%{fullData.name}</extra>"}
        for place, (name, side) in enumerate(sides.items())
    ]  # fmt: skip
    ratios = [counted(each, results.against) for each in results.outcomes]
    return Plot(
        "tasks", "Tasks one by one",
        f"How many times as fast as {base_in_words(results.against)}; a cross did not hold.",
        data,
        {"xaxis": log_axis("times as fast", ratios),
         "yaxis": {"type": "category", "categoryorder": "array",
                   "categoryarray": [plain(task) for task in reversed(tasks)]}},
        height=160 + 24 * len(tasks),
    )  # fmt: skip


def _by_policy(
    lock: SuiteLock, outcomes: Sequence[TaskOutcome]
) -> Mapping[str, list[TaskOutcome]]:
    sides = {
        variant.name: [each for each in outcomes if each.policy == variant.name]
        for variant in lock.variants
    }
    return {name: side for name, side in sides.items() if side}


Titled = tuple[str, str, Sequence[str], Sequence[Sequence[str]]]
"""A table: its title, a note, its headers and its rows."""


def _tables(
    lock: SuiteLock, results: Results
) -> list[Titled]:
    base = f"Times beside {base_in_words(results.against)}."
    found: list[Titled] = [("Table of policies", base, *policy_table(results))]
    if results.differences:
        found.append(("Table of pairs", base, *difference_table(results)))
    found.append(("Table of tasks", base, *task_table(lock, results)))
    return found


def _notes(lock: SuiteLock, ended: Sequence[tuple[PlannedRun, Ended]]) -> list[str]:
    failed = [f"{run.label} failed: {end.reason}" for run, end in ended if not end.outcome.valid]
    left = [f"{each.name} is left out of the suite: {each.reason}" for each in lock.left_out]
    return [*failed, *left]


def _facts(directory: Path, lock: SuiteLock) -> list[tuple[str, str]]:
    caps = lock.context.budgets.model_dump(exclude_none=True)
    return [
        ("suite", f"{lock.suite}, from {lock.origin}"),
        ("directory", str(directory)),
        ("device", str(lock.device)),
        ("caps of each run", words.parameters(caps) or "none"),
        ("knowledge bases", {"shared": "one a policy and seed", "each": "one a run"}[
            lock.knowledge] + (f", from {lock.knowledge_from}" if lock.knowledge_from else "")),
        ("seeds", ", ".join(map(str, lock.seeds))),
        *((f"settings of {each.name}", words.parameters(each.settings))
          for each in lock.variants if each.settings),
        *(("version of " + name, version) for name, version in lock.versions.items()),
        ("goes on, or is shown again, with", f"kernelblaster bench {in_shell(directory)}"),
        ("its winners are measured again with", f"kernelblaster rerun {in_shell(directory)}"),
    ]  # fmt: skip

"""What commands print when they end: a result, an evaluation, runs, the knowledge base, checks."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...harness.bound.speed_of_light import speed_of_light
from ...harness.doctor import Check
from ...harness.files import read_text
from ...harness.gpus import GPUS, known_gpu
from ...harness.records.evaluations import Evaluation
from ...harness.records.outcomes import outcome_in_words
from ...harness.records.tasks import Task
from ...tools.wording.measurements import costliest, kernels_text

if TYPE_CHECKING:
    from ...nodes.records.result import RunResult
    from ...nodes.run.reading.best_so_far import BestSoFar

LESSONS_SHOWN = 8
_END_NUMBERS = ("initial_us", "best_us", "gain")
LAUNCHES_SHOWN = 8
"""Of an evaluation, with all of their metrics; a table by kernel tells of more."""


def show_result(console: Console, result: RunResult, directory: Path) -> None:
    """Print the report, which ends with where the best kernel is."""
    console.print()
    report = read_text(directory / "report.txt", "a report")
    console.print(report, markup=False, highlight=False, soft_wrap=True, end="")
    console.print(f"Whole report: {directory / 'report.txt'}", highlight=False, soft_wrap=True)


def show_capped(console: Console, reason: str, best: BestSoFar | None) -> None:
    """Print why a run stopped with its place saved, and the best until then."""
    if best is not None:
        console.print(
            f"best so far: {best.best_us:.2f} us, {best.gain:.2f}x the initial kernel's "
            f"{best.initial_us:.2f} us (measured once, not confirmed): {best.source}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    console.print(reason, markup=False, highlight=False, soft_wrap=True)


def bound_lines(task: Task, gpu: str) -> list[str]:
    """Return in words what no kernel of a task can be faster than on a GPU; the first is all of
    it in short."""
    known = known_gpu(gpu)
    if known is None:
        names = ", ".join(GPUS)
        return [f"speed of light: the peaks of {gpu} are not known; --gpu takes {names}"]
    bound = speed_of_light(task, known)
    kinds = ", ".join(f"{kind} {count / 1e9:.3g} G" for kind, count in bound.operations.items())
    return [
        f"speed of light on {bound.gpu}: {bound}",
        f"  reads {bound.bytes_read / 1e6:.2f} MB, writes {bound.bytes_written / 1e6:.2f} MB: "
        f"{bound.memory_us:.2f} us",
        f"  operations: {kinds or 'none counted'}: {bound.fp32_us:.2f} us as accurate as its "
        f"types, {bound.tensor_us:.2f} us with half types; {bound.defined_us:.2f} us where none "
        "is spared",
        f"  {bound.source}",
        *(f"  not counted: {line}" for line in bound.unknown),
    ]


def show_ends(
    console: Console, ended: Sequence[tuple[Path, Mapping[str, Any]]], count: int
) -> None:
    """Print one row a task of several, and how many came to what."""
    table = Table(box=None, padding=(0, 2))
    for title in ("", "first us", "best us", "gain", "came to"):
        table.add_column(title, overflow="fold")
    for name, answer in ended:
        numbers = [f"{answer[key]:.2f}" if key in answer else "" for key in _END_NUMBERS]
        reason = answer.get("reason", "")
        reason = reason.partition(f"{name.name}:")[2].strip() or reason  # The row names the file.
        said = answer["outcome"].replace("_", " ") + (f": {reason}" if reason else "")
        table.add_row(escape(name.stem), *numbers, escape(said))
    console.print()
    console.print(table)
    outcomes = Counter(answer["outcome"].replace("_", " ") for _, answer in ended)
    outcomes["not begun"] = count - len(ended)
    told = ", ".join(f"{number} {what}" for what, number in outcomes.items() if number)
    console.print(f"{count} runs: {told}", highlight=False, soft_wrap=True)


def show_evaluation(console: Console, evaluation: Evaluation) -> None:
    """Print the verdict on one kernel, and its profile when it passed."""
    if evaluation.timing is None or evaluation.profile is None:
        said = escape(outcome_in_words(evaluation.outcome, evaluation.reason))
        console.print(f"[red]{said.replace(':', '[/]:', 1)}", soft_wrap=True)
        for item in evaluation.diagnostics:
            where = f"line {item.line}: " if item.line else ""
            console.print(f"  {item.kind}: {where}{item.message}", markup=False, soft_wrap=True)
        return
    timing = evaluation.timing
    cycles = "cycles not counted"
    if timing.elapsed_cycles is not None:
        cycles = f"{timing.elapsed_cycles:,.0f} elapsed cycles in all launches"
    console.print(
        f"[green]passed[/]: {timing.microseconds:.2f} us ({timing.provenance}, {timing.method}) "
        f"on {evaluation.device.gpu}, {cycles}"
    )
    facts = ", ".join(f"{name} {value}" for name, value in sorted(evaluation.facts.items()))
    console.print(facts, markup=False, soft_wrap=True)
    told = costliest(evaluation.profile, LAUNCHES_SHOWN)
    for launch in told:
        ties = f" (tied: {', '.join(launch.bottleneck_ties)})" if launch.bottleneck_ties else ""
        console.print(
            f"{launch.kernel} <<<{launch.grid}, {launch.block}>>> {launch.microseconds:.2f} us, "
            f"bottleneck {launch.bottleneck}{ties}",
            markup=False,
            soft_wrap=True,
        )
        for line in metric_lines(launch.metrics):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        for advice in launch.advice:
            console.print(f"  {advice}", markup=False, soft_wrap=True)
    if len(evaluation.profile.launches) > len(told):
        console.print(kernels_text(evaluation.profile), markup=False, soft_wrap=True)


def metric_lines(metrics: Mapping[str, float]) -> list[str]:
    """Return one line a metric, by name; whole on a narrow terminal too: the names are NVIDIA's."""
    if not metrics:
        return []
    width = max(map(len, metrics))
    return ["  metrics, in ncu's base units (nanoseconds, bytes, per cent):"] + [
        f"  {name:<{width}}  {value:,.0f}" if abs(value) >= 10_000 else
        f"  {name:<{width}}  {value:,.4g}"
        for name, value in sorted(metrics.items())
    ]  # fmt: skip


def show_runs(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    """Print one row a run."""
    if not found:
        console.print("no runs here; start one with: kernelblaster optimize TASK")
        return
    table = Table()
    for title in ("run", "task"):
        table.add_column(title, overflow="fold")  # A path cut short is of no use to anybody.
    for title in ("gpu", "status", "gain", "best us", "evaluations", "seconds"):
        table.add_column(title)
    for entry in found:
        gain = f"{entry['gain']:.2f}x" if "gain" in entry else ""
        best = f"{entry['best_us']:.2f} {entry['provenance']}" if "best_us" in entry else ""
        table.add_row(
            escape(entry["run"]),
            escape(_near(str(entry.get("task", "")))),
            str(entry.get("gpu", "")),
            entry["status"],
            gain,
            best,
            str(entry.get("evaluations", "")),
            f"{entry.get('seconds', 0.0):.0f}",
        )
    console.print(table)


def _near(path: str) -> str:
    """Return a path from here, where that is shorter."""
    try:
        return min(path, os.path.relpath(path), key=len) if path else path
    except (OSError, ValueError):  # The working directory is gone; a path that is none.
        return path


def show_knowledge(
    console: Console, states: Sequence[Mapping[str, Any]], provenance: str
) -> None:
    """Print each state with its techniques and lessons; gains are of one provenance."""
    for state in states:
        console.print(
            f"[bold]{escape(state['name'])}[/] ({state['origin']}; {state['primary']}; "
            f"{state['evidence']} rows of evidence)"
        )
        console.print(f"  {state['description']}", markup=False, soft_wrap=True)
        table = Table("technique", "prior", provenance, "passed / tried", box=None, padding=(0, 2))
        for entry in state["optimizations"]:
            mean = entry["mean_log_gain"]
            table.add_row(
                entry["technique"],
                f"{math.exp(entry['prior_log_gain']):.2f}x",
                "" if mean is None else f"{math.exp(mean):.2f}x",
                f"{entry['passed']} / {entry['tries']}",
            )
        console.print(table)
        show_lessons(console, state["lessons"])
        console.print()


def show_lessons(console: Console, lessons: Sequence[Mapping[str, Any]]) -> None:
    """Print lessons, one a line, and how many are left out."""
    for lesson in lessons[:LESSONS_SHOWN]:
        mark = " (contested)" if lesson["contested"] else ""
        console.print(f"  {lesson['kind']}{mark}: {lesson['text']}", markup=False, soft_wrap=True)
    if len(lessons) > LESSONS_SHOWN:
        console.print(f"  … and {len(lessons) - LESSONS_SHOWN} more lessons (--json has all)")


def show_counts(console: Console, title: str, counts: Mapping[str, int]) -> None:
    """Print counts, one a line."""
    console.print(title, markup=False, highlight=False, soft_wrap=True)
    for name, value in counts.items():
        console.print(f"  {name.replace('_', ' ')}: {value}", highlight=False)


def show_checks(console: Console, checks: Sequence[Check]) -> None:
    """Print one line a check, with its remedy where it failed."""
    for check in checks:
        mark = (
            "[green]ok[/]  "
            if check.passed
            else "[red]no[/]  "
            if check.required
            else "[yellow]--[/]  "
        )
        console.print(
            f"{mark}{check.name}: {escape(check.finding)}", soft_wrap=True, highlight=False
        )
        if not check.passed and check.remedy:
            console.print(f"      {escape(check.remedy)}", soft_wrap=True, highlight=False)

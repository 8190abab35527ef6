"""What a person sees: the live view of a run, its result, and the tables of the other commands."""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from ..harness.doctor import Check
from ..harness.records import Evaluation, outcome_in_words
from ..nodes.common.authors import roles_in_words
from ..nodes.records import RunResult
from ..nodes.run.best_so_far import BestSoFar
from ..tools.models.records import BUILTIN

LESSONS_SHOWN = 8


class JsonLines:
    """Every event as one JSON object a line on standard output, for scripts."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note(self, text: str) -> None:
        """Write one line of text as an event."""
        self.event({"event": "note", "text": text})

    def event(self, event: Mapping[str, Any]) -> None:
        """Write one event; a script that went away ends the run's output, not the run."""
        try:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class ProgressView:
    """A line for each thing that happened, and under them what each rollout is doing now.

    Quiet, it shows nothing but what is said by `note`.
    """

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._live = Live(console=console, transient=True, refresh_per_second=4)
        self._doing: dict[tuple[int, int], str] = {}
        self._described: dict[tuple[int, int], str] = {}
        self._thinking: dict[tuple[str, str], str] = {}
        self._spent = ""
        self._paths: dict[tuple[int, int], list[str]] = {}
        self._reached: dict[tuple[int, int], float] = {}
        self._steps = 0

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """Print one line above the live part."""
        self._console.print(text, soft_wrap=True, highlight=False)

    def event(self, event: Mapping[str, Any]) -> None:
        """Show one progress event; unknown kinds are left out."""
        if self._quiet:
            return
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler is not None:
            handler(event)

    def _on_task(self, event: Mapping[str, Any]) -> None:
        shapes = ", ".join(f"{name}{list(shape)}" for name, shape in event["shapes"].items())
        plan = event["plan"]
        self._steps = plan["steps"]
        self.note(f"[bold]{escape(event['task'])}[/] ({event['op_class']}): {escape(shapes)}")
        self.note(
            f"{event['gpu']}, [bold]{event['device']}[/]: {plan['iterations']} iterations of "
            f"{plan['rollouts']} rollouts of up to {plan['steps']} steps, seed {plan['seed']}"
        )
        if event["device_why"]:
            self.note(f"device: {escape(event['device_why'])}")
        asked = roles_in_words(event["models"])
        if asked:
            self.note(f"asked: {escape(asked)}")
        self.note(f"run directory {escape(event['run'])}")
        self._live.update("[dim]writing and verifying the first kernel …[/]")

    def _on_initial(self, event: Mapping[str, Any]) -> None:
        if event["author"] != BUILTIN:
            self.note(f"initial kernel{_by(event)}, {event['lines']} lines")

    def _on_baseline(self, event: Mapping[str, Any]) -> None:
        cases = event["facts"].get("cases")
        checked = f"; verified on {cases} cases" if cases else ""
        self.note(
            f"initial kernel: {event['microseconds']:.2f} us ({event['provenance']}), "
            f"bottleneck [yellow]{event['bottleneck']}[/]{checked}"
        )

    def _on_state(self, event: Mapping[str, Any]) -> None:
        self._now(event, f"state {event['bottleneck']}")
        self._described[event["iteration"], event["rollout"]] = event["description"]

    def _on_state_choice(self, event: Mapping[str, Any]) -> None:
        described = self._described.pop((event["iteration"], event["rollout"]), "")
        new = ", new" if event["discovered"] else ""
        if event["step"] == 0:
            self.note(
                f"{self._place(event)}state [yellow]{escape(event['state'])}[/]{new}: "
                f"[dim]{escape(described)}{_by(event)}[/]"
            )

    def _on_choice(self, event: Mapping[str, Any]) -> None:
        self._now(event, f"writing {event['technique']}")

    def _on_ended(self, event: Mapping[str, Any]) -> None:
        self.note(f"{self._place(event)}ends: {escape(event['reason'])}")
        self._now(event, "")

    def _on_attempt(self, event: Mapping[str, Any]) -> None:
        if event["written"]:
            self._now(event, f"compiling and verifying {event['technique']}")

    def _on_rejected(self, event: Mapping[str, Any]) -> None:
        self.note(
            f"{self._place(event)}{event['technique']}: [red]refused, {event['outcome']}[/]: "
            f"{escape(event['reason'])}"
        )

    def _on_step(self, event: Mapping[str, Any]) -> None:
        place = self._place(event)
        if event["log_gain"] is not None:
            gain = math.exp(event["log_gain"])
            color = "green" if gain > 1.01 else "yellow" if event["accepted"] else "red"
            verdict = f"[{color}]{gain:.2f}x[/]" + ("" if event["accepted"] else ", not kept")
        elif event["outcome"] == "not_applicable":
            verdict = f"[dim]does not apply: {escape(event['reason'])}[/]"
        elif event["outcome"] == "no_answer":
            verdict = f"[red]not written: {escape(event['reason'])}[/]"
        else:
            verdict = f"[red]{event['outcome']}[/]"
        self._grow(event, verdict)
        expected = math.exp(event["expected_log_gain"])
        self.note(
            f"{place}{event['technique']}: {verdict} (expected {expected:.2f}x); "
            f"best {event['best_microseconds']:.2f} us{_by_whom(event)}"
        )
        self._now(event, "")

    def _on_policy_evaluation(self, event: Mapping[str, Any]) -> None:
        error = event["mean_absolute_error"]
        off = "" if error is None else f", expected gains off by {math.exp(error):.2f}x on average"
        self.note(
            f"[cyan]policy evaluation[/] of iteration {event['iteration'] + 1}: "
            f"{event['techniques']} techniques in their states, {event['success_rate']:.0%} of the "
            f"tries passed{off}{_by(event)}"
        )
        self._console.print(self._tree(event["iteration"]))
        if self._spent:
            self.note(f"[dim]{self._spent}[/]")

    def _on_thinking(self, event: Mapping[str, Any]) -> None:
        self._thinking[_asker(event)] = event["model"]
        self._show()

    def _on_answered(self, event: Mapping[str, Any]) -> None:
        self._thinking.pop(_asker(event), None)
        money = event["all_money"]
        cost = "" if money is None else f", ${money:.4f}"
        self._spent = f"{event['calls']} model calls, {event['all_tokens']:,} tokens{cost}"
        self._show()

    def _on_trying_again(self, event: Mapping[str, Any]) -> None:
        self._thinking.pop(_asker(event), None)
        self.note(
            f"  [yellow]{event['role']}[/]: {escape(event['reason'])}; "
            f"trying again in {event['seconds']:.1f} s"
        )

    def _on_malformed(self, event: Mapping[str, Any]) -> None:
        self.note(f"  [yellow]{event['role']}[/]: malformed reply: {escape(event['reason'])}")

    def _on_standing_in(self, event: Mapping[str, Any]) -> None:
        self._thinking.pop(_asker(event), None)
        self.note(
            f"  [yellow]{event['role']}[/]: {escape(event['reason'])}; "
            "the built-in reasoner stands in"
        )

    def _on_note(self, event: Mapping[str, Any]) -> None:
        self.note(f"[yellow]note[/]: {escape(event['text'])}")

    def _on_initial_rejected(self, event: Mapping[str, Any]) -> None:
        self.note(f"first kernel: [red]refused, {event['outcome']}[/]: {escape(event['reason'])}")

    def _on_soft_verification(self, event: Mapping[str, Any]) -> None:
        if event["vetoed"]:
            self.note(f"[red]winner vetoed[/]: {escape('; '.join(event['reasons']))}")
        else:
            remarks = "; ".join(event["remarks"]) or "no objection"
            self.note(f"winner read by {escape(event['author'])}: {escape(remarks)}")

    def _on_parameter_update(self, event: Mapping[str, Any]) -> None:
        self._doing.clear()
        lessons = len(event["lessons"])
        signed = Counter(lesson["author"] for lesson in event["lessons"])
        by = "".join(f", {count} by {name}" for name, count in signed.items() if name != BUILTIN)
        self.note(f"[cyan]parameter update[/]: {lessons} lessons written{escape(by)}")

    def _on_gap_analysis(self, event: Mapping[str, Any]) -> None:
        if event["author"] != BUILTIN:
            self.note(f"[cyan]gap analysis[/]: {len(event['gaps'])} gaps explained{_by(event)}")

    def _on_confirmation(self, event: Mapping[str, Any]) -> None:
        if event["confirmed"]:
            self.note(f"winner measured again: {event['microseconds']:.2f} us, confirmed")
        else:
            self.note(f"[red]winner not confirmed[/]: {escape(event['reason'])}")

    def _place(self, event: Mapping[str, Any]) -> str:
        return (
            f"  [dim]{event['iteration'] + 1}.{event['rollout'] + 1} step {event['step'] + 1}[/]  "
        )

    def _now(self, event: Mapping[str, Any], text: str) -> None:
        place = (event["iteration"], event["rollout"])
        self._doing[place] = f"step {event['step'] + 1} of {self._steps}: {text}"
        self._show()

    def _show(self) -> None:
        lines = [
            f"[dim]rollout {iteration + 1}.{rollout + 1}  {doing}[/]"
            for (iteration, rollout), doing in sorted(self._doing.items())
        ]
        lines += [
            f"[dim]{escape(model)} thinks as {role}{escape(place)}[/]"
            for (role, place), model in sorted(self._thinking.items())
        ]
        if self._spent:
            lines.append(f"[dim]{self._spent}[/]")
        self._live.update("\n".join(lines))

    def _grow(self, event: Mapping[str, Any], verdict: str) -> None:
        """Add a step to its trajectory's branch of the tree."""
        place = (event["iteration"], event["rollout"])
        self._paths.setdefault(place, []).append(f"{event['technique']} {verdict}")
        self._reached[place] = event["best_microseconds"]

    def _tree(self, iteration: int) -> Tree:
        """Return an iteration's trajectories, each with its steps and what they gained."""
        tree = Tree(f"[dim]iteration {iteration + 1}[/]")
        for (number, rollout), steps in sorted(self._paths.items()):
            if number == iteration:
                best = self._reached[number, rollout]
                tree.add(f"{number + 1}.{rollout + 1} best {best:.2f} us: " + " → ".join(steps))
        return tree


def _by(event: Mapping[str, Any]) -> str:
    """Return who did it, where that was not the built-in reasoner."""
    return "" if event["author"] == BUILTIN else f" by {escape(event['author'])}"


def _by_whom(event: Mapping[str, Any]) -> str:
    """Return who did which part of a step, where that was not all built in."""
    parts: dict[str, list[str]] = {}
    for part, key in (("state", "state_author"), ("choice", "choice_author"), ("source", "author")):
        if event[key] != BUILTIN:
            parts.setdefault(event[key], []).append(part)
    told = "; ".join(f"{', '.join(done)} by {name}" for name, done in parts.items())
    return f" [dim]({escape(told)})[/]" if told else ""


def _asker(event: Mapping[str, Any]) -> tuple[str, str]:
    """Return who thinks and where: the role, and the numbers of its place counted from 1."""
    numbers = [part + 1 for part in event["place"] if isinstance(part, int)]
    return event["role"], f" at {'.'.join(str(number) for number in numbers)}" if numbers else ""


def show_result(console: Console, result: RunResult, directory: Path) -> None:
    """Print the report, which ends with where the best kernel is."""
    console.print()
    report = (directory / "report.txt").read_text()
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
    console.print(
        f"[green]passed[/]: {timing.microseconds:.2f} us ({timing.provenance}, {timing.method}) "
        f"on {evaluation.device.gpu}"
    )
    facts = ", ".join(f"{name} {value}" for name, value in sorted(evaluation.facts.items()))
    console.print(facts, markup=False, soft_wrap=True)
    for launch in evaluation.profile.launches:
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
        lessons = state["lessons"]
        for lesson in lessons[:LESSONS_SHOWN]:
            mark = " (contested)" if lesson["contested"] else ""
            console.print(
                f"  {lesson['kind']}{mark}: {lesson['text']}", markup=False, soft_wrap=True
            )
        if len(lessons) > LESSONS_SHOWN:
            console.print(f"  … and {len(lessons) - LESSONS_SHOWN} more lessons (--json has all)")
        console.print()


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

"""What a bench shows: a live table of what is over and what runs, and its tables at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from .terminal import Terminal

if TYPE_CHECKING:
    from ...bench.records import SuiteLock

WIDE = 220
"""Columns of what is no terminal."""


class BenchView:
    """What a person sees of a bench: a live table, and a line for each run that is over."""

    def __init__(self, console: Console, directory: Path, lock: SuiteLock, *, quiet: bool) -> None:
        self._console, self._lock, self._quiet = console, lock, quiet
        self._directory = directory
        self._running: dict[str, tuple[Any, float, str]] = {}
        self._live = Live(console=console, refresh_per_second=2, transient=True)
        self._table = Table()

    def __enter__(self) -> BenchView:
        if not self._quiet and self._console.is_terminal:
            self._live.__enter__()
        self.note(f"{len(self._lock.runs)} runs of {self._lock.suite} in {self._directory}")
        self._count()
        self._show()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live.is_started:
            self._live.__exit__(*error)

    def note(self, text: str) -> None:
        """Print a line above the table."""
        if not self._quiet:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def told(self, kind: str, run: Any, said: Any) -> None:
        """Show what happens to a run; see `bench.running.Told`."""
        if kind == "begun":
            self._running[run.place] = (run, time.monotonic(), "")
        elif kind == "event":
            if said["event"] == "step":
                best = f"best {said['best_microseconds']:.2f} us"
                self._running[run.place] = (*self._running[run.place][:2], best)
        else:
            self._running.pop(run.place, None)
            if kind == "ended":
                self.note(f"{run.label}: {_in_words(said)}")
                self._count()
        self._show()

    def _show(self) -> None:
        if self._live.is_started:
            running = "\n".join(
                f"{run.label}: {time.monotonic() - since:.0f} s {best}"
                for run, since, best in self._running.values()
            )
            self._live.update(Group(self._table, Text(running, style="dim")))

    def _count(self) -> None:
        from ...bench.results import policy_table, results_of

        if self._live.is_started:
            results = results_of(self._directory, self._lock, compare=False)
            title = f"{results.finished} of {results.planned} runs"
            self._table = filled(*policy_table(results), title, self._console.width)


def _in_words(ended: Any) -> str:
    outcome = ended.outcome
    if not outcome.valid:
        return f"{outcome.outcome.replace('_', ' ')}, counted as 1.0 at best: {ended.reason}"
    gain = outcome.gain or outcome.initial_us / outcome.best_us
    return (
        f"{gain:.2f}x the initial kernel, {outcome.best_us:.2f} us ({outcome.provenance}), "
        f"{outcome.evaluations} evaluations, {outcome.seconds:.0f} s"
    )


def show_results(console: Console, lock: SuiteLock, results: Any, directory: Path) -> None:
    """Print the tables of a bench, and where the files are."""
    from ...bench.results import base_in_words, difference_table, policy_table, task_table

    against = base_in_words(results.against)
    for title, (titles, rows) in (
        (f"{results.finished} of {results.planned} runs, against {against}", policy_table(results)),
        ("between policies", difference_table(results)),
        ("tasks", task_table(lock, results)),
    ):
        if not rows:
            continue
        console.print(filled(titles, rows, title, console.width))
    for name, reason in results.reasons.items():
        console.print(f"{name}: {reason}", markup=False, highlight=False, soft_wrap=True)
    for each in lock.left_out:
        console.print(f"left out: {each.name}: {each.reason}", markup=False, soft_wrap=True)
    console.print(f"Results: {directory}/results.md", markup=False, soft_wrap=True)


def filled(
    titles: Sequence[str], rows: Sequence[Sequence[str]], title: str, width: int = WIDE
) -> Table:
    """Return a table without the columns in which nothing is said.

    One whose words do not fit into `width` is laid on its side where it is narrower so.
    """
    kept = [n for n in range(len(titles)) if any(row[n] not in ("", "0") for row in rows)]
    lines = [[line[n] for n in kept] for line in (titles, *rows)]
    aside = [list(line) for line in zip(*lines, strict=True)]
    if width < _wide(lines) and _wide(aside) < _wide(lines):
        lines = aside
    head, *body = [[escape(cell) for cell in line] for line in lines]
    table = Table(*head, title=title, title_justify="left")
    for line in body:
        table.add_row(*line)
    return table


def _wide(lines: Sequence[Sequence[str]]) -> int:
    """Return the columns of a terminal that a table takes where no word is broken."""
    return 1 + sum(
        3 + max(len(word) for cell in column for word in (cell.split() or [""]))
        for column in zip(*lines, strict=True)
    )


def console_of_tables(to_errors: bool) -> Console:
    """Return where tables go; one that is no terminal breaks no line of them."""
    console = Terminal(stderr=to_errors)
    return console if console.is_terminal else Terminal(stderr=to_errors, width=WIDE)

"""The command `rerun`: measures the winners of a bench or a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..harness.errors import UserError, unwritten
from ..harness.files import write_atomically
from .flags import DeviceName, Gpu, Gpus, Json, Quiet
from .showing.bench_view import console_of_tables
from .showing.output import print_json, say


def rerun(
    place: Annotated[
        Path,
        typer.Argument(
            help="Directory of a bench or of a run, or its report in HTML.",
            metavar="SUITE|RUN|REPORT",
        ),
    ],
    device: DeviceName = None,
    gpu: Gpu = None,
    gpus: Gpus = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Winners at a time.")] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Of a report: run the Python of its references.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure the winners of a bench or run again, from what it stored, and say which claims hold.

    A report holds its tasks and winners too: whoever gets it can measure them on his own machine.

    Exit code 1 where one does not.
    """
    from ..bench.directory import RERUN_FILE
    from ..bench.rerun import rerun as measure_again
    from ..harness.process.interruption import Stopped, run_until_stopped
    from .flags import with_gpus

    console = console_of_tables(as_json)

    def told(again: Any) -> None:
        if not quiet:
            why = f": {again.reason}" if again.reason else ""
            verdict = again.verdict.replace("_", " ")
            line = f"{again.policy}, seed {again.seed}, {again.task}: {verdict}{why}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    chosen = device or ""
    if gpus is not None:
        chosen = with_gpus(device or "cuda", gpus)
    place = place.resolve()
    if place.is_file() and not trust:
        raise UserError(
            f"{place} holds references, whose Python would run as yours: where you know who made "
            "it, say so with --trust"
        )
    written = place.with_suffix(f".{RERUN_FILE}") if place.is_file() else place / RERUN_FILE
    try:
        found = run_until_stopped(measure_again(place, chosen, gpu or "", jobs, told))
    except Stopped as stopped:
        say(f"stopped by {stopped}; nothing is kept", aside=True)
        raise typer.Exit(stopped.exit_code) from None
    try:
        write_atomically(written, (found.model_dump_json(indent=2) + "\n").encode())
    except OSError as error:
        raise UserError(unwritten(written, error)) from error
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _show_rerun(console, found, written)
    if set(found.counts) & {"slower", "fails"}:
        raise typer.Exit(1)


def _show_rerun(console: Console, found: Any, path: Path) -> None:
    """Print what became of each claim, and how many hold."""
    table = Table("policy", "task", "seed", "claimed", "now", "verdict")
    for each in found.claims:
        verdict = each.verdict.replace("_", " ")
        if each.shapes:
            held = sum(shape.holds for shape in each.shapes)
            verdict += f", at {held} of {len(each.shapes)} other sizes"
        told = [_gain(each.claimed), _gain(each.now), verdict]
        table.add_row(*map(escape, (each.policy, each.task, str(each.seed), *told)))
    console.print(table)
    counts = [f"{number} {word.replace('_', ' ')}" for word, number in found.counts.items()]
    for line in (f"on {found.device}: {', '.join(counts)}", f"Written to {path}"):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _gain(figures: Any) -> str:
    if figures is None:
        return ""
    low, high = figures.gain_interval
    return f"{figures.gain:.2f}x ({low:.2f} to {high:.2f}), {figures.best_us:.2f} us"

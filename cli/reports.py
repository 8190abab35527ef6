"""kernelblaster report, compare and watch: what runs came to, side by side, or as they go on."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ..harness.errors import UserError, in_shell
from ..harness.files import read_text
from .flags import Events, Json
from .showing.output import print_json, say
from .showing.terminal import Terminal

LOOK_EVERY_SECONDS = 0.5
"""How often a run that is watched is looked at; read only where its files changed."""


def add_report_commands(app: typer.Typer) -> None:
    """Put the commands of this module among an application's."""
    for command in (report, compare, watch):
        app.command()(command)


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run directories, or one suite's.", metavar="RUN... | SUITE"),
    ],
    html: Annotated[
        Path | None, typer.Option(help="Write it as one HTML file that needs no network.")
    ] = None,
    md: Annotated[Path | None, typer.Option(help="Write it as Markdown.")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write its figures, a row a step; of a suite, a run.")
    ] = None,
) -> None:
    """Print the report of a finished run; or write that of any run, finished or not.

    Several runs are told together: what each came to, and what all of them show. A suite's report
    has its policies side by side, and the same of all its runs.
    """
    files = {"html": html, "md": md, "csv": csv}
    if not any(files.values()):
        for run in runs:
            _print_report(run)
        return
    directories = list(dict.fromkeys(runs))
    for kind, path in files.items():
        if path is not None:
            write_report(path, directories, kind)
            say(f"{path}: the report of {', '.join(map(str, directories))}")


def write_report(path: Path, directories: list[Path], kind: str) -> None:
    """Write the report of runs, or of a suite, in one of its forms: html, md or csv.

    Raises:
        UserError: it cannot be read, or not be written there.
    """
    from ..nodes.run.ending.report import write_file

    write_file(path, _form(directories, kind), "or name another file")


def _form(directories: list[Path], kind: str) -> str:
    """Return a report in one of its forms."""
    from ..bench.directory import is_suite

    if any(is_suite(each) for each in directories):
        return _form_of_suite(directories, kind)
    from ..reports.csv_tables import steps_csv
    from ..reports.markdown import run_markdown
    from ..reports.reading import read_run
    from ..reports.run_page import run_html
    from ..reports.runs_page import runs_html

    if kind == "html" and len(directories) > 1:
        return runs_html([read_run(each, whole=False) for each in directories])
    accounts = [read_run(each, whole=kind == "html") for each in directories]
    if kind == "html":
        return run_html(accounts[0])
    if kind == "csv":
        return steps_csv(accounts)
    return "\n".join(run_markdown(each) for each in accounts)


def _form_of_suite(directories: list[Path], kind: str) -> str:
    from ..bench.directory import read_suite
    from ..bench.results import as_csv, as_markdown, results_of
    from ..reports.suite_page import suite_html

    if len(directories) > 1:
        raise UserError("a suite's report is its own: name one suite, or runs alone")
    directory = directories[0]
    if kind == "html":
        return suite_html(directory)
    lock = read_suite(directory)
    results = results_of(directory, lock)
    return as_csv(results) if kind == "csv" else as_markdown(directory, lock, results)


def _print_report(run: Path) -> None:
    from ..bench.directory import is_suite

    if is_suite(run):
        sys.stdout.write(_form_of_suite([run], "md"))
        return
    from ..memory.run.exchange import count_waiting
    from ..nodes.run.beginning.begin import stored_plan

    plan = stored_plan(run)
    path = run / "report.txt"
    if not path.is_file():
        waiting = count_waiting(run) if plan.device.startswith("deferred") else 0
        if waiting:
            raise UserError(
                f"{run} waits for {waiting} {'job' if waiting == 1 else 'jobs'} of the GPU host; "
                f"export with: kernelblaster jobs export {in_shell(run)} -o jobs.json"
            )
        raise UserError(
            f"{run} is not finished; go on with: kernelblaster resume {in_shell(run)}; what it "
            f"came to until now: kernelblaster report {in_shell(run)} --html FILE"
        )
    sys.stdout.write(read_text(path, "a report"))


def compare(
    first: Annotated[Path, typer.Argument(help="Run directory, or suite directory.")],
    second: Annotated[Path, typer.Argument(help="Another of the same kind.")],
    as_json: Json = False,
) -> None:
    """Show two runs, or two suites, side by side: gains with intervals, paths, cost, settings."""
    from ..bench.directory import is_suite

    kinds = {is_suite(first), is_suite(second)}
    if len(kinds) > 1:
        raise UserError(f"{first} and {second} are a suite and a run; compare like with like")
    found = _suites(first, second) if True in kinds else _runs(first, second)
    if as_json:
        told = {name: _plain(value) for name, value in found._asdict().items()}
        print_json({"first": str(first), "second": str(second), **told})
        return
    console = Terminal()
    console.print(found.sentence, markup=False, highlight=False, soft_wrap=True)
    for name, title in (
        ("figures", ""), ("paths", "path of the best kernel"), ("tasks", "tasks"),
        ("settings", "settings that differ"),
    ):  # fmt: skip
        if sides := getattr(found, name, None):
            console.print(_side_by_side(title, (str(first), str(second)), sides))


def _runs(first: Path, second: Path) -> Any:
    from ..reports.comparison import compare_runs
    from ..reports.reading import read_run

    return compare_runs(read_run(first, whole=False), read_run(second, whole=False))


def _suites(first: Path, second: Path) -> Any:
    from ..reports.suite_comparison import compare_suites

    return compare_suites(first, second)


def _plain(value: Any) -> Any:
    """Return rows and records of a comparison as JSON has them."""
    if isinstance(value, list):
        return [each._asdict() if hasattr(each, "_asdict") else each.model_dump() for each in value]
    return value


def _side_by_side(title: str, names: tuple[str, str], sides: Any) -> Table:
    table = Table(title=title or None, title_justify="left")
    for name in ("", *names):
        table.add_column(escape(name), overflow="fold")
    for side in sides:
        table.add_row(*(escape(text) for text in side))
    return table


def watch(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    events: Events = None,
) -> None:
    """Show a run that another process drives, until it ends; Ctrl-C leaves the run alone."""
    from ..reports.watching import Watcher
    from .showing.progress import JsonLines, ProgressView

    watcher = Watcher(run)
    console = Terminal()
    view = JsonLines() if events else ProgressView(console)
    try:
        with view:
            account, happened = watcher.look()
            while True:
                for event in happened:
                    view.event(event)
                if account.result is not None or not account.held:
                    break
                while not watcher.changed():
                    time.sleep(LOOK_EVERY_SECONDS)
                account, happened = watcher.look()
    except KeyboardInterrupt:
        say(f"no longer watched; the run goes on: {run}", aside=True)
        return
    from ..reports.summary import sentence

    if events:
        print_json({"event": "end", "outcome": account.status, "run": str(run)})
    elif account.result is not None and (run / "report.txt").is_file():
        console.print()
        _print_report(run)
    else:
        console.print(sentence(account), markup=False, highlight=False, soft_wrap=True)

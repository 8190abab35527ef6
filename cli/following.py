"""Runs sessions and follows them on the terminal: progress, a stop by the user, the end."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.console import Console

from ..harness.errors import UserError
from .output import print_json


class Showing(NamedTuple):
    """How a run is shown."""

    as_json: bool = False
    """The result is one JSON object on standard output; the rest goes to standard error."""
    quiet: bool = False
    events: str | None = None
    """jsonl: events and result are JSON lines on standard output."""

    @property
    def in_words(self) -> bool:
        """Whether the result is shown as text."""
        return not self.as_json and self.events is None


def follow(session: Any, showing: Showing) -> None:
    """Run a new session as `showing` says, and print what it came to."""
    try:
        follow_all([session], showing)
    except UserError:
        session.discard_unserved()
        raise
    finally:
        session.close()


def follow_all(
    sessions: list[Any], showing: Showing, refused: Mapping[Path, UserError] | None = None
) -> None:
    """Run sessions one after the other; a run that fails keeps no other from going on.

    Neither does one that could not be opened: `refused` says which, and why.

    Waiting for another host is an end like others (exit code 0, outcome `waiting`), and so are a
    cap that was reached (`budget_reached`) and a model that is gone (`model_unavailable`).
    """
    refused = refused or {}
    answers: list[dict[str, Any]] = []
    alone = len(sessions) + len(refused) == 1
    failed = False

    def tell(directory: Path, error: UserError) -> None:
        nonlocal failed
        if alone:
            raise error
        failed = True
        sys.stderr.write(f"kernelblaster: {directory}: {error}\n")
        answers.append({"outcome": "failed", "reason": str(error), "run": str(directory)})

    try:
        for directory, error in refused.items():
            tell(directory, error)
        for session in sessions:
            try:
                answers.append(watch(session, showing))
            except UserError as error:
                tell(session.directory, error)
    finally:  # Who stops one run has the answers of those before it.
        if showing.events:
            for answer in answers:
                print_json({"event": "end", **answer})
        elif showing.as_json and answers:
            print_json(answers[0] if alone else {"runs": answers})
    if failed:
        raise typer.Exit(2)


def watch(session: Any, showing: Showing) -> dict[str, Any]:
    """Run one session to its end, or until it waits; return what JSON says of it."""
    from ..graph.session import Capped, Interrupted, Waiting
    from ..nodes.run.overview import read_seconds
    from .progress import JsonLines, ProgressView
    from .tables import show_capped, show_result

    console = Console(stderr=not showing.in_words)
    view = JsonLines() if showing.events else ProgressView(console, quiet=showing.quiet)

    asked_to_stop = False

    async def work() -> Any:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        if not (showing.quiet or showing.events or session.resumed):
            view.note(f"loading {Path(session.plan.task).name} …")
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, task)
        return await session.run(view.event)

    def stop(task: asyncio.Task[Any]) -> None:
        nonlocal asked_to_stop
        if asked_to_stop or not session.begun:
            task.cancel()
            return
        asked_to_stop = True
        view.note("stopping after the current step (again: at once); the place is saved …")
        session.drain()

    try:
        with view:
            result = asyncio.run(work())
    except (Interrupted, asyncio.CancelledError):
        stopped = str(Interrupted(session.directory))
        if not session.begun:
            session.discard_unserved()
            stopped = "stopped before anything was done"
        Console(stderr=True).print(stopped, highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    except Waiting as waiting:
        if showing.in_words:
            console.print(str(waiting), markup=False, highlight=False, soft_wrap=True)
        return {"outcome": "waiting", "jobs": waiting.jobs, "run": str(session.directory)}
    except Capped as capped:
        if showing.in_words:
            show_capped(console, capped.reason, capped.best)
        best = capped.best.model_dump(mode="json") if capped.best else {}
        reached = {"outcome": capped.outcome, "reason": capped.reason}
        return {**reached, "run": str(session.directory), **best}
    if showing.in_words:
        show_result(console, result, session.directory)
    seconds = read_seconds(session.directory)
    return {**result.model_dump(mode="json"), "seconds": seconds}

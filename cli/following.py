"""Runs sessions and follows them on the terminal: progress, a stop by the user, the end."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.console import Console

from ..harness.errors import UserError
from .showing.output import print_json
from .showing.terminal import Terminal


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


class Opening(NamedTuple):
    """A run that is opened when its turn comes, and let go when it ends."""

    name: Path
    """Of the task, or of the run that is resumed: what is told where it cannot be opened."""
    open: Callable[[], Any]
    """Returns the session. Raises UserError where there can be none."""


def follow_all(
    openings: Sequence[Opening], showing: Showing, replies: Sequence[str] = ()
) -> None:
    """Run sessions one after the other; one that fails, or cannot be opened, keeps no other back.

    `replies` answer what a run asked a person when it stopped.

    Waiting for another host is an end like others (exit code 0, outcome `waiting`), and so are a
    cap that was reached (`budget_reached`), a model that is gone (`model_unavailable`) and a
    question that nobody is there to answer (`undecided`).

    Raises:
        UserError: the only one fails.
        typer.Exit: one of several failed, with code 2; a person stops, with code 130.
    """
    ended: list[tuple[Path, dict[str, Any]]] = []
    alone = len(openings) == 1
    try:
        for opening in openings:
            try:
                ended.append((opening.name, _followed(opening, showing, replies)))
            except _Failed as failed:
                if alone:
                    raise failed.error from None
                where, reason = failed.where, str(failed.error)
                names_it = reason.startswith((f"{where}:", f"{where.resolve()}:"))
                line = reason if names_it else f"{where}: {reason}"
                sys.stderr.write(f"kernelblaster: {line}\n")
                told = {"outcome": "failed", "reason": reason, "run": str(where)}
                ended.append((opening.name, told))
    finally:  # Who stops one run has the answers of those before it.
        _conclude(ended, len(openings), showing)
    if any(answer["outcome"] == "failed" for _, answer in ended):
        raise typer.Exit(2)


class _Failed(Exception):
    """A run could not be opened or served; `where` is its directory, or what was to become one."""

    def __init__(self, where: Path, error: UserError) -> None:
        super().__init__(str(error))
        self.where, self.error = where, error


def _followed(opening: Opening, showing: Showing, replies: Sequence[str]) -> dict[str, Any]:
    """Open one run, follow it to its end and let it go. Raises _Failed where there is no end."""
    try:
        session = opening.open()
    except UserError as error:
        raise _Failed(opening.name, error) from error
    try:
        return watch(session, showing, replies)
    except UserError as error:
        session.discard_unserved()
        where = session.directory if session.directory.exists() else opening.name
        raise _Failed(where, error) from error
    finally:
        session.close()


def _conclude(ended: list[tuple[Path, dict[str, Any]]], count: int, showing: Showing) -> None:
    from .showing.tables import show_ends

    answers = [answer for _, answer in ended]
    if showing.events:
        for answer in answers:
            print_json({"event": "end", **answer})
    elif showing.as_json and answers:
        print_json(answers[0] if count == 1 else {"runs": answers})
    elif showing.in_words and count > 1:
        show_ends(Terminal(), ended, count)


def watch(session: Any, showing: Showing, replies: Sequence[str] = ()) -> dict[str, Any]:
    """Run one session to its end, or until it waits; return what JSON says of it."""
    from ..graph.session import Capped, Interrupted, Undecided, Waiting
    from ..nodes.run.reading.overview import read_seconds
    from .questions import parse_answers
    from .showing.progress import JsonLines, ProgressView
    from .showing.tables import show_capped, show_result

    console = Terminal(stderr=not showing.in_words)
    view = JsonLines() if showing.events else ProgressView(console, quiet=showing.quiet)

    asked_to_stop = False

    async def work(answers: Mapping[str, Any] | None) -> Any:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        if not (showing.quiet or showing.events or session.resumed or answers):
            view.note(f"loading {Path(session.plan.task).name} …")
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, task)
        return await session.run(view.event, answers)

    def stop(task: asyncio.Task[Any]) -> None:
        nonlocal asked_to_stop
        if asked_to_stop or not session.begun:
            task.cancel()
            return
        asked_to_stop = True
        view.note("stopping after the current step (again: at once); the place is saved …")
        session.drain()

    answers: Mapping[str, Any] | None = None
    if replies:
        answers = parse_answers(replies, asyncio.run(session.questions()), session.directory)
    try:
        while True:
            try:
                with view:
                    result = asyncio.run(work(answers))
                break
            except Undecided as undecided:
                answers = _decide(console, undecided, showing)
                if answers is None:
                    return {
                        "outcome": "undecided",
                        "questions": list(undecided.questions.values()),
                        "run": str(session.directory),
                    }
    except (Interrupted, asyncio.CancelledError):
        stopped = str(Interrupted(session.directory))
        if not session.begun:
            session.discard_unserved()
            stopped = "stopped before anything was done"
        Terminal(stderr=True).print(stopped, highlight=False, soft_wrap=True)
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


def _decide(console: Console, undecided: Any, showing: Showing) -> dict[str, Any] | None:
    """Return a person's answers; None, and how to give them later, where nobody answers now.

    Raises:
        Exit: the person stops the run instead (Ctrl-C); its place is saved.
    """
    from .questions import ask_all, can_ask, how_to_answer, show_question

    how = how_to_answer(undecided.directory, undecided.questions)
    if showing.in_words and can_ask():
        try:
            answers = ask_all(console, undecided.questions)
        except KeyboardInterrupt:
            Terminal(stderr=True).print(f"\n{how}", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(130) from None
        if answers is not None:
            return answers
        console.print()
    elif showing.in_words:
        for question in undecided.questions.values():
            show_question(console, question)
    if showing.in_words:
        console.print(how, markup=False, highlight=False, soft_wrap=True)
    return None

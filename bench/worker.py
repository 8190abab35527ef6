"""The process that does runs of a bench, one after the other, as its parent asks for them.

usage: worker.py DIRECTORY, with lines of JSON on standard input and output:
    {"run": {...}}            do this run; answered by {"event": ...} as it goes on, then by
                              {"ended": {...}} or {"unfinished": "why"} or {"refused": "why"}
    {"stop": true}            stop the run under way after its step
It ends when standard input does: its parent is gone, or needs it no longer.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from ..harness.errors import UserError
from .directory import read_suite
from .one_run import OneRun, Unfinished
from .records import PlannedRun

TOLD = frozenset({"baseline", "step", "confirmation", "note", "result"})
"""Events that a parent hears of."""


async def serve(directory: Path, lines: TextIO, say: Callable[[dict[str, Any]], None]) -> None:
    """Do the runs that are asked for on `lines`, until these end."""
    lock = await asyncio.to_thread(read_suite, directory)
    asked: asyncio.Queue[PlannedRun | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    under_way: list[OneRun] = []

    def stop() -> None:
        for one in under_way:
            one.stop()

    def read() -> None:
        for line in lines:
            said = json.loads(line)
            if "run" in said:
                run = PlannedRun.model_validate(said["run"])
                loop.call_soon_threadsafe(asked.put_nowait, run)
            else:
                loop.call_soon_threadsafe(stop)
        if under_way:
            os._exit(1)  # Nobody is there to hear of it; the next process goes on with the run.
        loop.call_soon_threadsafe(asked.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    while (run := await asked.get()) is not None:
        one = OneRun(directory, lock, run)
        under_way.append(one)
        try:
            ended = await one.to_its_end(
                lambda event: say({"event": event}) if event["event"] in TOLD else None
            )
            say({"ended": ended.model_dump(mode="json")})
        except Unfinished as stopped:
            say({"unfinished": str(stopped)})
        except UserError as error:
            say({"refused": str(error)})
        finally:
            under_way.clear()


def answer(answers: TextIO, words: dict[str, Any]) -> None:
    """Write a line to the parent; where it is gone, the process ends and the run stays open."""
    try:
        answers.write(json.dumps(words) + "\n")
        answers.flush()
    except BrokenPipeError:
        os._exit(1)  # An exception in the middle of a run would be taken for its end.


def main(directory: str) -> None:
    """Serve a parent on standard input and output; what others print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    asyncio.run(serve(Path(directory), sys.stdin, functools.partial(answer, answers)))


if __name__ == "__main__":
    os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
    os.environ.setdefault("LANGSMITH_TRACING", "false")
    main(sys.argv[1])

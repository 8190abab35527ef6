"""What of a reference is run, for whoever waits: a file names each part when it first begins."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from pathlib import Path


class _Note:
    """A file that is written as each part is begun for the first time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begun: set[str] = set()

    def begin(self, what: str) -> None:
        if what not in self._begun:
            self._begun.add(what)
            with contextlib.suppress(OSError):
                self._path.write_text(what, encoding="utf-8")


_noted: ContextVar[_Note | None] = ContextVar("noted", default=None)


def note_in(path: Path) -> None:
    """Have what is begun from now on, in this context, noted in a file."""
    _noted.set(_Note(path))


def begin(what: str) -> None:
    """Note that something is run; nothing where no file was named."""
    if note := _noted.get():
        note.begin(what)

"""What of a reference is run, for whoever waits: a file that names the latest that was begun."""

from __future__ import annotations

import contextlib
from pathlib import Path

_begun: set[str] = set()
_file: list[Path] = []


def note_in(path: Path) -> None:
    """Have what is begun from now on noted in a file."""
    _file[:] = [path]
    _begun.clear()


def begin(what: str) -> None:
    """Note that something is run for the first time; nothing where no file was named."""
    if _file and what not in _begun:
        _begun.add(what)
        with contextlib.suppress(OSError):
            _file[0].write_text(what, encoding="utf-8")

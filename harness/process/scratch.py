"""Scratch folders that name the process they belong to, so that those of dead ones are swept."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "kernelblaster-scratch-"
_NAME = re.compile(re.escape(PREFIX) + r"\w+-(\d+)-(\d+)-(\d+)-\w+")


def new_scratch(purpose: str, parent: Path | None = None) -> Path:
    """Return a new folder of this process; what dead processes of this user left is removed.

    It lies in `parent`, or where temporary files do; `purpose` is a word of its name.
    Raises OSError where it cannot be made.
    """
    sweep(parent)
    return Path(tempfile.mkdtemp(prefix=_prefix(purpose), dir=parent))


@contextlib.contextmanager
def scratch_folder(purpose: str, parent: Path | None = None) -> Iterator[Path]:
    """Yield a folder as `new_scratch` makes it, and remove it afterwards."""
    sweep(parent)
    with tempfile.TemporaryDirectory(prefix=_prefix(purpose), dir=parent) as folder:
        yield Path(folder)


def sweep(parent: Path | None = None) -> None:
    """Remove the folders of this user whose process has ended."""
    namespace = _namespace()
    with contextlib.suppress(OSError):
        for folder in (parent or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
            named = _NAME.fullmatch(folder.name)
            # A process of another container cannot be looked up from here.
            if named is None or int(named[1]) != namespace:
                continue
            if _started(int(named[2])) != int(named[3]) and _is_ours(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _prefix(purpose: str) -> str:
    process = os.getpid()
    return f"{PREFIX}{purpose}-{_namespace()}-{process}-{_started(process)}-"


def _is_ours(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return not folder.is_symlink() and folder.stat().st_uid == os.geteuid()
    return False


def _started(process: int) -> int:
    """Return when a process started, in the kernel's ticks; 0 where there is none.

    With its number, which is used again after a while, that tells it from every other.
    """
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])


def _namespace() -> int:
    """Return what tells containers that number their processes apart."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0

"""Where results that can be made again are kept, and how an entry appears there all at once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserError, unwritten
from ..process.scratch import new_scratch, scratch_folder

QUOTA_VARIABLE = "KERNELBLASTER_CACHE_GIB"
DEFAULT_GIB = 20.0
IN_USE_SECONDS = 3600.0
"""What was used since may be in use still: an evaluation of a build takes minutes."""

_UNIT = 1 << 16
_LOOKS = 50
"""The cache is looked through when a part of the quota of this size is new."""
_LEFT = 0.9
"""Share of the quota that is left by removing."""


def cache_root() -> Path:
    """Return the cache folder, made if missing.

    $KERNELBLASTER_CACHE, else $XDG_CACHE_HOME/kernelblaster, else ~/.cache/kernelblaster.
    Raises UserError where it cannot be written.
    """
    chosen = os.environ.get("KERNELBLASTER_CACHE")
    if chosen:
        root = Path(chosen)
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        root = (Path(base) if base else Path.home() / ".cache") / "kernelblaster"
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(root, error) from error
    if not os.access(root, os.W_OK | os.X_OK):
        raise UserError(
            f"the cache folder {root} is not writable: set KERNELBLASTER_CACHE to another folder"
        )
    return root.resolve()


@contextmanager
def new_entry(final: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `final` in one step when the block succeeds.

    When another process published the same entry first, theirs stays: entries are keyed by content,
    so both are equal. Raises UserError when the cache cannot be written (disk full, read-only).
    """
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = new_scratch("entry", cache_root())
    except OSError as error:
        raise unwritable(final.parent, error) from error
    try:
        yield temporary
        temporary.chmod(0o755)
        try:
            temporary.rename(final)
        except OSError:
            if not final.is_dir():
                raise
    except OSError as error:
        raise unwritable(final.parent, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def used_entry(entry: Path) -> None:
    """Note that an entry is used: what was not for the longest time is removed first."""
    # A cache that cannot be written is not trimmed either.
    with contextlib.suppress(OSError):
        os.utime(entry)


def quota_bytes() -> int:
    """Return how large a folder of entries may grow: $KERNELBLASTER_CACHE_GIB. Raises UserError."""
    text = os.environ.get(QUOTA_VARIABLE) or str(DEFAULT_GIB)
    with contextlib.suppress(ValueError, OverflowError):
        if (size := int(float(text) * (1 << 30))) > 0:
            return size
    raise UserError(f"{QUOTA_VARIABLE}={text}: not a number of GiB above 0")


def trim_entries(folder: Path, added: Path) -> None:
    """Count a new entry of a folder (FOLDER/aa/KEY); remove the longest unused over the quota.

    Most calls only count: sizes are added up when a fiftieth of the quota is new. Several processes
    count together, and one of them looks. Raises UserError where the quota is no number.
    """
    quota = quota_bytes()
    with contextlib.suppress(OSError), (folder / "written").open("ab") as counter:
        counter.write(b"." * (1 + _size(added) // _UNIT))
        counter.flush()
        if os.fstat(counter.fileno()).st_size * _UNIT * _LOOKS < quota:
            return
        fcntl.flock(counter, fcntl.LOCK_EX | fcntl.LOCK_NB)
        counter.truncate(0)
        _remove_unused(folder, quota)


def _remove_unused(folder: Path, quota: int) -> None:
    entries = [
        (entry.stat().st_mtime, _size(entry), entry) for entry in folder.glob("*/*")
        if entry.is_dir()
    ]  # fmt: skip
    total = sum(size for _, size, _ in entries)
    if total <= quota:
        return
    with scratch_folder("unused", cache_root()) as taken:
        for used, size, entry in sorted(entries):
            if total <= quota * _LEFT or used > time.time() - IN_USE_SECONDS:
                break
            # Whole, or not at all: nobody sees half an entry.
            with contextlib.suppress(OSError):
                if entry.stat().st_mtime == used:
                    entry.rename(taken / entry.name)
                    total -= size


def _size(entry: Path) -> int:
    with contextlib.suppress(OSError):
        return sum(path.lstat().st_size for path in entry.iterdir())
    return 0


def unwritable(folder: Path, error: OSError) -> UserError:
    """Return the UserError for a cache folder that refuses to be written."""
    words = unwritten(f"to the cache folder {folder}", error)
    return UserError(f"{words}, or set KERNELBLASTER_CACHE to another folder")

"""Where results that can be made again are kept, and how an entry appears there all at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserError
from ..process.scratch import new_scratch


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


def unwritable(folder: Path, error: OSError) -> UserError:
    """Return the UserError for a cache folder that refuses to be written."""
    reason = error.strerror or str(error)
    return UserError(
        f"cannot write to the cache folder {folder}: {reason}; free space there, or set "
        "KERNELBLASTER_CACHE to another folder"
    )

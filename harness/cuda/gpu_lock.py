"""One process at a time on a GPU, whoever's it is: a lock file that the whole machine shares."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..build.cache import cache_root
from ..errors import UserError
from ..process.children import Cancelled, caller_cancelled

FOLDERS = (Path("/run/lock"), Path("/tmp"))
"""Where every user may make files; the first of them that is so. Not $TMPDIR, which differs."""
POLL_SECONDS = 0.05


@contextlib.contextmanager
def gpu_lock(uuid: str) -> Iterator[None]:
    """Hold the lock of a GPU; waits for whoever has it, of this user or another.

    Raises:
        Cancelled: the caller of `off_loop` was cancelled.
        UserError: the lock file cannot be used.
    """
    descriptor = _open(lock_file(uuid))
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if caller_cancelled():
                    raise Cancelled from None
                time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def lock_file(uuid: str, folders: Sequence[Path] = FOLDERS) -> Path:
    """Return the path of a GPU's lock file.

    Which folder it is must not depend on who asks: root could write to any. Where none is open to
    all, it is this user's cache folder, and other users are not kept off.
    """
    name = f"kernelblaster-{re.sub(r'[^A-Za-z0-9-]', '_', uuid)[:100]}.lock"
    for folder in folders:
        with contextlib.suppress(OSError):
            if stat.S_IMODE(folder.stat().st_mode) & 0o003 == 0o003:  # All may make files.
                return folder / name
    own = cache_root() / "locks"
    own.mkdir(parents=True, exist_ok=True)
    return own / name


def _open(path: Path) -> int:
    """Return a descriptor of the file, made if missing. Raises UserError.

    One that is there is opened for reading, which suffices to lock it: in a folder that all write
    to, Linux lets nobody open another's file in order to make it (fs.protected_regular).
    """
    # Somebody who is just making it may not have opened it to all yet.
    for _ in range(40):
        try:
            return _opened(path)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                return _made(path)
        except PermissionError:
            time.sleep(POLL_SECONDS)
        except OSError as error:
            reason = "a symbolic link" if error.errno == errno.ELOOP else error.strerror
            raise _unusable(path, str(reason)) from error
    raise _unusable(path, "it may not be read")


def _opened(path: Path) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unusable(path, "no regular file")
    return descriptor


def _made(path: Path) -> int:
    flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileExistsError:
        raise
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from error
    os.fchmod(descriptor, 0o666)  # Whatever the umask says: it is everybody's.
    return descriptor


def _unusable(path: Path, reason: str) -> UserError:
    return UserError(
        f"the lock file of the GPU, {path}, cannot be used ({reason}): remove it when nobody "
        "measures on this GPU"
    )

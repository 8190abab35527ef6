"""Who may use a GPU: lock files that the whole machine shares, for one process alone or some."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..build.cache import cache_root
from ..errors import UserError
from ..process.children import Cancelled, caller_cancelled
from ..records.tensors import TensorSpec

FOLDERS = (Path("/run/lock"), Path("/tmp"))
"""Where every user may make files; the first of them that is so. Not $TMPDIR, which differs."""
POLL_SECONDS = 0.02
SHARED_PART = 1 / 32
"""Of a GPU's memory: who has larger tensors is alone on it. Verifying takes up to seven times as
much, in double precision, and several do so side by side; who finds no room among others is asked
again, alone."""
HELD_PART = 1 / 64
"""Who has larger tensors keeps none of them on the GPU while nothing is asked of him."""
DOUBLE_PART = 1 / 8
"""Who has larger tensors does without double precision where memory does not suffice for it."""
PATIENCE_SECONDS = 10.0
"""How long who shares lets all pass that want to be alone; then he takes his turn among them. A
profile, the longest of what is alone, has a GPU for four to nine seconds where many use it."""
MARK_SECONDS = 0.05
"""How long it is tried to leave another time on a file than it has: kernels before Linux 6.13 count
them in steps of up to ten milliseconds."""


def leaves_room(tensors: Sequence[TensorSpec], memory_bytes: int, part: float) -> bool:
    """Say whether tensors leave a GPU of so much memory room for others: they take a part at most.

    Args:
        tensors: what lies on the GPU.
        memory_bytes: the GPU's memory.
        part: SHARED_PART where work goes on, HELD_PART where nobody uses them just now.
    """
    return sum(spec.nbytes for spec in tensors) <= part * memory_bytes


class Hold:
    """A GPU's lock while it is held: locked alone as it enters, then shared where it may be."""

    def __init__(self, descriptor: int, *, shared: bool) -> None:
        """Lock the file; whoever does holds the turn. Raises Cancelled."""
        self._descriptor = descriptor
        self._met = not _lock_now(descriptor, fcntl.LOCK_EX)
        if shared or self._met:
            _wait(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        self._shared = shared
        self._entered = self._mark()

    def had_company(self) -> bool:
        """Say whether another may have used the GPU since it is held."""
        if not self._shared:
            return False
        return self._met or os.fstat(self._descriptor).st_mtime_ns != self._entered

    def _mark(self) -> int:
        """Leave the time of entering on the file; return it, -1 where that cannot be known.

        It is another than that of whoever entered before, in the same step of the file's clock too.
        """
        before, ends = os.fstat(self._descriptor).st_mtime_ns, time.monotonic() + MARK_SECONDS
        try:
            os.utime(self._descriptor)
            while os.fstat(self._descriptor).st_mtime_ns == before and time.monotonic() < ends:
                time.sleep(0.001)
                os.utime(self._descriptor)
        except OSError:
            return -1
        return os.fstat(self._descriptor).st_mtime_ns


@contextlib.contextmanager
def gpu_lock(uuid: str, *, shared: bool = False) -> Iterator[Hold]:
    """Hold the lock of a GPU; waits for whoever has it, of this user or another.

    Who waits to be alone is waited for by all that come later, so that he is not kept waiting by
    those who share. Those who share let all that wait to be alone go first, and then enter
    together: taken in turns, most of them would have had the GPU to themselves.

    Args:
        shared: whether others that share may use the GPU too. What is timed may not be disturbed.

    Raises:
        Cancelled: the caller of `off_loop` was cancelled.
        UserError: the lock file cannot be used.
    """
    with contextlib.ExitStack() as held:
        # Locked by all who are alone or want to be.
        first = held.enter_context(_opened(lock_file(f"{uuid}-first")))
        if shared:
            _wait(first, fcntl.LOCK_EX, PATIENCE_SECONDS)
            fcntl.flock(first, fcntl.LOCK_UN)
        else:
            _wait(first, fcntl.LOCK_SH)
        with _opened(lock_file(f"{uuid}-turn")) as turn:
            _wait(turn, fcntl.LOCK_EX)
            hold = Hold(held.enter_context(_opened(lock_file(uuid))), shared=shared)
        yield hold


def _wait(descriptor: int, kind: int, seconds: float = math.inf) -> None:
    """Lock a file once that is possible, or leave it after so long. Raises Cancelled."""
    ends = time.monotonic() + seconds
    while not _lock_now(descriptor, kind) and time.monotonic() < ends:
        if caller_cancelled():
            raise Cancelled
        time.sleep(POLL_SECONDS)


def _lock_now(descriptor: int, kind: int) -> bool:
    """Lock a file where that is possible at once, and say whether it was."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Yield a descriptor of the file, made if missing; what is locked by it ends with it."""
    descriptor = _open(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """Return a descriptor of the file, made if missing. Raises UserError.

    One that is there is opened for reading, which suffices to lock it: in a folder that all write
    to, Linux lets nobody open another's file in order to make it (fs.protected_regular).
    """
    # Somebody who is just making it may not have opened it to all yet.
    for _ in range(40):
        try:
            return _there(path)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                return _made(path)
        except PermissionError:
            time.sleep(POLL_SECONDS)
        except OSError as error:
            reason = "a symbolic link" if error.errno == errno.ELOOP else error.strerror
            raise _unusable(path, str(reason)) from error
    raise _unusable(path, "it may not be read")


def _there(path: Path) -> int:
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

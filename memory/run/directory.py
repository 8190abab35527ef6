"""The directory of a run: appears whole, is held by whoever runs it, and says what was asked."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from ...harness.errors import UserError, in_shell, unwritten
from ...harness.files import read_json, write_atomically
from ...harness.process.scratch import scratch_folder
from ..locations import default_runs_directory

RUN_FORMAT = "kernelblaster-run/2"
PLAN_FILE = "run.json"
LOCK_FILE = "lock"
CHECKPOINTS_FILE = "checkpoints.sqlite"
"""Only there where this program holds the checkpoints: a server or a parent graph has its own."""
SECONDS_FILE = "reference_seconds.json"
_DATABASES = (CHECKPOINTS_FILE, "run.sqlite")
MADE_FILES = (
    PLAN_FILE,
    "budgets.json",
    LOCK_FILE,
    *(f"{name}{tail}" for name in _DATABASES for tail in ("", "-wal", "-shm", "-journal")),
)
"""What a run makes in its directory before anything is evaluated, beside ARTIFACTS: all that may
be removed where nothing comes of it."""
ARTIFACTS = "artifacts"


class NotEmpty(UserError):
    """The directory of a new run holds something already."""


class InUse(UserError):
    """Somebody else is at the run."""


class RunDirectory:
    """A run directory held by this process; the kernel lets it go when the process ends.

    Nobody else can run it meanwhile, not even another thread of this process; everybody can read
    it.
    """

    def __init__(self, path: Path, lock: int) -> None:
        """Take over a lock's descriptor; use `create` or `hold`."""
        self.path = path
        self._lock = lock
        self._was_there = True

    @classmethod
    def create(
        cls,
        path: Path,
        plan: dict[str, Any],
        texts: dict[str, str],
        fill: Callable[[Path], None] = lambda made: None,
    ) -> Self:
        """Make the directory, held, all at once; one that is there and empty is filled in place.

        Args:
            path: where it appears.
            plan: what run.json holds.
            texts: other files to begin with, by name.
            fill: puts more into the folder that becomes the directory.

        Raises:
            UserError: it holds something already, is a file, or cannot be written.
        """
        there = path.exists()  # Asked once: what another makes meanwhile is no empty directory.
        if there and not path.is_dir():
            raise UserError(f"--run {path} is a file; give a directory")
        if there and any(path.iterdir()):
            hint = (
                f"continue it with: kernelblaster resume {in_shell(path)}"
                if (path / PLAN_FILE).is_file()
                else "choose an empty or new directory with --run"
            )
            raise NotEmpty(f"{path} is not empty; {hint}")
        document = _document(plan)
        try:
            # It may be a mount, or where somebody stands: what is there keeps its place.
            make = cls._fill if there else cls._appear
            return make(path, texts | {PLAN_FILE: document}, fill)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise NotEmpty(f"{path} is not empty; choose another with --run") from error
            raise UserError(
                f"cannot create the run directory {path}: {error.strerror}; "
                "choose another with --run"
            ) from error

    @classmethod
    def _appear(cls, path: Path, texts: dict[str, str], fill: Callable[[Path], None]) -> Self:
        path.parent.mkdir(parents=True, exist_ok=True)
        # What a killed process leaves of it is swept by the next that makes a run beside it.
        with scratch_folder("run", path.parent) as scratch:
            made = scratch / path.name
            made.mkdir()
            for name, text in texts.items():
                (made / name).write_text(text)
            fill(made)
            held = cls.hold(made)
            try:
                os.rename(made, path)  # Fails where somebody was quicker.
            except BaseException:
                held.close()
                raise
        held.path, held._was_there = path, False
        return held

    @classmethod
    def _fill(cls, path: Path, texts: dict[str, str], fill: Callable[[Path], None]) -> Self:
        held = cls.hold(path)
        try:
            if [found.name for found in path.iterdir()] != [LOCK_FILE]:
                raise OSError(errno.ENOTEMPTY, "not empty")
            fill(path)
            for name, text in texts.items():  # The plan is the last: without it there is no run.
                write_atomically(path / name, text.encode())
        except BaseException:
            held.close()
            raise
        return held

    @classmethod
    def hold(cls, path: Path) -> Self:
        """Hold a directory that is there.

        Raises:
            InUse: another run of this or another process holds it.
            UserError: it cannot be written.
        """
        try:
            lock = os.open(path / LOCK_FILE, os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            raise UserError(
                f"cannot write to the run directory {path}: {error.strerror}"
            ) from error
        for patience in (True, True, False):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return cls(path, lock)
            except BlockingIOError:
                if patience:  # Who only looks (`is_held`) is gone in a moment.
                    time.sleep(0.02)
        os.close(lock)
        raise InUse(
            f"the run directory {path} is in use by another process; "
            "wait for it to end, or choose another with --run"
        )

    def write_plan(self, plan: dict[str, Any]) -> None:
        """Replace the plan of a run.

        Raises:
            UserError: the disk is full or the directory is not writable.
        """
        try:
            write_atomically(self.path / PLAN_FILE, _document(plan).encode())
        except OSError as error:
            raise UserError(
                f"cannot write to the run directory {self.path}: {error.strerror}"
            ) from error

    def remove(self) -> None:
        """Remove what this object made, for a run that came to nothing.

        What others put there stays, and the directory with it; so does one that was there before.
        One that another put in its place is not touched.
        """
        with contextlib.suppress(OSError):
            if not os.path.samestat(os.fstat(self._lock), os.stat(self.path / LOCK_FILE)):
                return
            _remove_made(self.path, keep=self._was_there)

    def close(self) -> None:
        """Let the directory go; closing twice is harmless."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def _document(plan: dict[str, Any]) -> str:
    return json.dumps({"format": RUN_FORMAT, "plan": plan}, indent=2) + "\n"


def _remove_made(directory: Path, *, keep: bool = False) -> None:
    """Remove what a run made, and unless `keep` the directory where nothing else is in it."""
    artifacts = directory / ARTIFACTS
    found = [] if artifacts.is_symlink() else artifacts.glob("[0-9a-f][0-9a-f]")
    folders = [folder for folder in found if not folder.is_symlink()]
    texts = [file for folder in folders for file in folder.glob("[0-9a-f]" * 62)]
    for file in (*(directory / name for name in MADE_FILES), *texts):
        with contextlib.suppress(OSError):
            if stat.S_ISREG(file.lstat().st_mode):
                file.unlink()
    for folder in (*folders, artifacts, *(() if keep else (directory,))):
        with contextlib.suppress(OSError):  # Something of others' is in it.
            folder.rmdir()


def change_reference_seconds(path: Path, seconds: float) -> None:
    """Set how long PyTorch may take for a run's task from now on, whatever its plan says.

    Raises:
        UserError: the disk is full or the directory is not writable.
    """
    try:
        write_atomically(path / SECONDS_FILE, f"{seconds}\n".encode())
    except OSError as error:
        raise UserError(unwritten(path / SECONDS_FILE, error)) from error


def reference_seconds_of(path: Path) -> float | None:
    """Return what `change_reference_seconds` set; None where nothing was.

    Raises:
        UserError: the file is damaged.
    """
    file = path / SECONDS_FILE
    again = f"kernelblaster resume {in_shell(path)} --reference-seconds 600"
    remedy = f"write it anew, for example: {again}"
    try:
        seconds = read_json(file, "how long PyTorch may take", remedy)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    if type(seconds) not in (int, float) or not 0 < seconds < float("inf"):
        raise UserError(f"{file} is damaged: {seconds!r} is no number of seconds; {remedy}")
    return float(seconds)


@contextlib.contextmanager
def held(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Hold those of some directories that are runs and free, while what is shared is put in them.

    Yields them. Who runs one of the others says what is wrong with it.
    """
    with contextlib.ExitStack() as stack:
        free: list[Path] = []
        for path in paths:
            with contextlib.suppress(UserError):
                read_plan(path)
                stack.callback(RunDirectory.hold(path).close)
                free.append(path)
        yield free


def is_held(path: Path) -> bool:
    """Say whether somebody runs a directory; a shared lock, so that looking disturbs nobody."""
    try:
        descriptor = os.open(path / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def how_to_go_on(path: Path, flags: str, value: str) -> str:
    """Return what goes on with a run that waits, where it lives.

    Args:
        path: its directory.
        flags: of `kernelblaster resume`, which needs the run's checkpoints.
        value: with which whoever holds the checkpoints elsewhere resumes the run.
    """
    if (path / CHECKPOINTS_FILE).is_file():
        return f"kernelblaster resume {in_shell(path)} {flags}".rstrip()
    return f"Command(resume={value})"


def new_run_directory(task_name: str, root: Path | None = None) -> Path:
    """Return the first free ROOT/TASK-N; not created. N counts from 1."""
    root = root or default_runs_directory()
    stem = re.sub(r"[^A-Za-z0-9_.-]", "-", task_name) or "task"
    number = 1
    while (root / f"{stem}-{number}").exists():
        number += 1
    return root / f"{stem}-{number}"


def read_plan(path: Path) -> dict[str, Any]:
    """Return the plan in a run directory as it was written.

    Raises:
        UserError: there is no run, or its run.json is not this program's.
    """
    file = path / PLAN_FILE
    try:
        document = read_json(file, "a run's plan", "start a new run")
        if document["format"] != RUN_FORMAT:
            raise UserError(
                f"{file} has format {document['format']!r}, this program writes {RUN_FORMAT!r}; "
                "resume it with the version that started it"
            )
        plan: dict[str, Any] = document["plan"]
        return plan
    except FileNotFoundError as error:
        raise UserError(
            f"{path} is no run directory (no run.json); list runs with: kernelblaster runs"
        ) from error
    except NotADirectoryError as error:
        raise UserError(
            f"{path} is a file, no run directory; list runs with: kernelblaster runs"
        ) from error
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    except (KeyError, TypeError) as error:
        raise UserError(f"{file} is damaged: {error}; start a new run") from error

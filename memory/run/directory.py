"""The directory of a run: appears whole, is held by whoever runs it, and says what was asked."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any, Self

from ...harness.errors import UserError
from ..locations import default_runs_directory

RUN_FORMAT = "kernelblaster-run/2"
PLAN_FILE = "run.json"
LOCK_FILE = "lock"


class NotEmpty(UserError):
    """The directory of a new run holds something already."""


class RunDirectory:
    """A run directory held by this process; the kernel lets it go when the process ends.

    Nobody else can run it meanwhile, not even another thread of this process; everybody can read
    it.
    """

    def __init__(self, path: Path, lock: int) -> None:
        """Take over a lock's descriptor; use `create` or `hold`."""
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, path: Path, plan: dict[str, Any], texts: dict[str, str]) -> Self:
        """Make the directory, held, all at once; it may be there if it is empty.

        Args:
            path: where it appears.
            plan: what run.json holds.
            texts: other files to begin with, by name.

        Raises:
            UserError: it holds something already, is a file, or cannot be written.
        """
        if path.exists() and not path.is_dir():
            raise UserError(f"--run {path} is a file; give a directory")
        if path.exists() and any(path.iterdir()):
            hint = (
                f"continue it with: kernelblaster resume {path}"
                if (path / PLAN_FILE).is_file()
                else "choose an empty or new directory with --run"
            )
            raise NotEmpty(f"{path} is not empty; {hint}")
        made = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")
        try:
            made.mkdir(parents=True)
            document = {"format": RUN_FORMAT, "plan": plan}
            for name, text in (texts | {PLAN_FILE: json.dumps(document, indent=2) + "\n"}).items():
                (made / name).write_text(text)
            held = cls.hold(made)
            # Replaces an empty directory, and fails where somebody was quicker.
            os.rename(made, path)
        except OSError as error:
            shutil.rmtree(made, ignore_errors=True)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise NotEmpty(f"{path} is not empty; choose another with --run") from error
            raise UserError(
                f"cannot create the run directory {path}: {error.strerror}; "
                "choose another with --run"
            ) from error
        held.path = path
        return held

    @classmethod
    def hold(cls, path: Path) -> Self:
        """Hold a directory that is there.

        Raises:
            UserError: another run of this or another process holds it, or it cannot be written.
        """
        try:
            lock = os.open(path / LOCK_FILE, os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            raise UserError(
                f"cannot write to the run directory {path}: {error.strerror}"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise UserError(
                f"the run directory {path} is in use by another process; "
                "wait for it to end, or choose another with --run"
            ) from error
        return cls(path, lock)

    def remove(self) -> None:
        """Remove the directory; only for a run that came to nothing, by who made it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def close(self) -> None:
        """Let the directory go; closing twice is harmless."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


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
        document = json.loads(file.read_text())
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
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is damaged: {error}; start a new run") from error

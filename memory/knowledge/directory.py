"""The directory of a knowledge base: made, recognised, and never anybody else's."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import uuid
from pathlib import Path

from ...harness.errors import UserError
from ...harness.files import read_json
from ..records.states import EARLIER_SIGNATURES, SIGNATURE_NAME

FORMAT = "kernelblaster-knowledge-base"
VERSION = 1
MARKER = "kb.json"
EVIDENCE_FILE = "evidence.sqlite"
"""The journal of all that was learned: the truth."""
_TEMPORARY = f".{MARKER}.writing"


def prepare(directory: Path, *, create: bool) -> None:
    """Check that the directory is a knowledge base of this version; make it one if it is empty.

    Nothing is touched unless the directory is missing or empty and `create` is set.

    Raises:
        UserError: missing (without `create`), not a directory, holding other files, of another
            program or version, or not writable.
    """
    if os.path.lexists(directory) and not directory.is_dir():
        raise UserError(
            f"{directory} is not a directory, or a link to nowhere; name a directory for --kb"
        )
    marker = directory / MARKER
    if os.path.lexists(marker):
        _check(marker)
        return
    present = sorted(path.name for path in directory.iterdir()) if directory.exists() else []
    if marker.exists():  # Another has just made it.
        _check(marker)
        return
    if any(not name.startswith(_TEMPORARY) for name in present):
        raise UserError(
            f"{directory} is not a knowledge base of KernelBlaster (it holds {present[0]} but no "
            f"{MARKER}); nothing was changed: name a new or empty directory for --kb"
        )
    if not create:
        raise UserError(f"there is no knowledge base at {directory}; check --kb")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _mark(directory)
    except OSError as error:
        raise UserError(
            f"cannot make a knowledge base at {directory}: {error.strerror}; "
            "name a writable directory for --kb"
        ) from error


def _mark(directory: Path) -> None:
    document = {"format": FORMAT, "version": VERSION, "signature": SIGNATURE_NAME}
    # Others may be making it at the same time, of the same content: each under a name of its own.
    temporary = directory / f"{_TEMPORARY}-{uuid.uuid4().hex[:8]}"
    temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, directory / MARKER)


def _check(marker: Path) -> None:
    remedy = "restore it, or name another directory for --kb"
    try:
        document = read_json(marker, "the mark of a knowledge base", remedy)
    except OSError as error:
        raise UserError(f"{marker} cannot be read: {error.strerror}; {remedy}") from error
    found = document if isinstance(document, dict) else {}
    if found.get("format") != FORMAT:
        raise UserError(
            f"{marker.parent} belongs to another program ({MARKER} says "
            f"{found.get('format')!r}); nothing was changed: name another directory for --kb"
        )
    if found.get("version") == VERSION and found.get("signature") in EARLIER_SIGNATURES:
        # An earlier program could not read what is added from now on. Where nothing can be
        # written nothing is added.
        with contextlib.suppress(OSError):
            _mark(marker.parent)
        return
    for field, ours in (("version", VERSION), ("signature", SIGNATURE_NAME)):
        if found.get(field) != ours:
            raise UserError(
                f"the knowledge base {marker.parent} has {field} {found.get(field)!r}, this "
                f"program reads {ours!r}; nothing was changed: use the program that wrote it, or "
                "name another directory for --kb"
            )


class Lock:
    """An exclusive lock on a file, held until closed or the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        """Try to take the lock at once; `held` says whether it was free."""
        self.held = False
        try:
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.held = True
        except BlockingIOError:
            self.close()
        except OSError as error:
            raise UserError(
                f"cannot lock {path}: {error.strerror}; name a writable directory"
            ) from error

    def close(self) -> None:
        """Give the lock back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self.held = False

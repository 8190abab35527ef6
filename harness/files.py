"""Files that appear whole or not at all, and files of others read without trusting their size."""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from .errors import UserError

_PIECE = 1 << 20


def write_atomically(target: Path, data: bytes, *, handed_on: bool = False) -> None:
    """Write a file whole or not at all, on the disk before it appears.

    Args:
        target: the file.
        data: what it holds.
        handed_on: whether others are to read it, as far as the umask lets them; else its owner
            alone.

    Raises:
        UserError: what is there is no regular file: a device, a pipe or a folder is not replaced.
        OSError: it cannot be written.
    """
    require_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = str(target.parent / f".writing-{uuid.uuid4().hex}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666 if handed_on else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def require_replaceable(target: Path) -> None:
    """Raise UserError where something other than a regular file is there already."""
    try:
        mode = target.stat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise UserError(f"{target} is {_kind(mode)}: name a new file, or one to be replaced")


def read_regular(path: Path, limit: int, what: str) -> bytes:
    """Return the bytes of a regular file.

    A pipe is not waited for, and of a file that has no end no more than the limit is read.

    Args:
        path: the file.
        limit: most bytes it may have.
        what: what the file is to be, for messages: "a kernel's source".

    Raises:
        UserError: it is no regular file, or larger than the limit.
        OSError: it is missing or cannot be read.
    """
    # Opened before it is looked at, so that both are the same file.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UserError(f"{path} is {_kind(found.st_mode)}: {what} is a regular file")
        data = bytearray()
        # What grows while it is read, or does not tell its size, ends at the limit too.
        while found.st_size <= limit and len(data) <= limit:
            piece = os.read(descriptor, min(_PIECE, limit + 1 - len(data)))
            if not piece:
                return bytes(data)
            data += piece
    finally:
        os.close(descriptor)
    size = max(found.st_size, len(data))
    raise UserError(f"{path} has {size:,} bytes: {what} has at most {limit:,}")


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket",
    }  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "no regular file")


LARGEST_SOURCE_BYTES = 4 << 20
"""Of a kernel's source, whoever wrote it: a network of 200 layers takes two million."""


def read_source(path: Path) -> str:
    """Return the text of a CUDA source file.

    Raises:
        UserError: no such file, no regular file, empty, too large, or not text.
    """
    try:
        data = read_regular(path, LARGEST_SOURCE_BYTES, "a kernel's source")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if not data.strip():
        raise UserError(f"{path} is empty: give a CUDA source that defines `launch`")
    return _text(path, data)


LARGEST_DOCUMENT_BYTES = 64 << 20
"""Of a file of ours that a person may look at: a plan, a result, a report."""


def read_text(path: Path, what: str) -> str:
    """Return the text of a file of ours.

    Args:
        path: the file.
        what: what the file is to be, for messages: "a report".

    Raises:
        UserError: it is missing, no regular file, too large, or not text.
    """
    try:
        return _text(path, read_regular(path, LARGEST_DOCUMENT_BYTES, what))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def read_json(path: Path, what: str, remedy: str, limit: int = LARGEST_DOCUMENT_BYTES) -> Any:
    """Return the value in a JSON file of ours, however it was damaged.

    Args:
        path: the file.
        what: what the file is to be, for messages: "a run's plan".
        remedy: what to do where it is damaged, for messages: "start a new run".
        limit: most bytes it may have.

    Raises:
        UserError: it is no regular file, larger than the limit, or not JSON; JSON that is nested
            deeper than anything of ours (200 levels) is none either.
        OSError: it is missing or cannot be read.
    """
    try:
        return from_json(read_regular(path, limit, what))
    except ValueError as error:
        raise UserError(f"{path} is damaged, it is not JSON ({error}): {remedy}") from error
    except MemoryError as error:
        raise UserError(f"{path} is too large for this machine's memory: {remedy}") from error


def _text(path: Path, data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file: byte {error.start} is not UTF-8") from error
    if "\0" in text:
        raise UserError(f"{path} is not a text file: it contains NUL bytes")
    return text

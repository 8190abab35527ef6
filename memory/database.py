"""Open sqlite files the same way everywhere: write-ahead log, a lock, faults as one clear line."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import ValidationError
from sqlite_utils import Database as SqliteUtils

from ..harness.errors import UserError
from ..harness.records.record import Record

Stored = TypeVar("Stored", bound=Record)

BUSY_TIMEOUT_SECONDS = 30.0
"""How long a writer waits for another process's transaction: each takes milliseconds."""


class Database:
    """One connection to one sqlite file, shared by threads under a lock.

    Other processes may read and write the same file. Context manager; closing twice is harmless.
    """

    def __init__(self, path: Path, schema: str, *, copied: bool = False) -> None:
        """Open (and create, with its parent folders) the file and run the idempotent schema.

        Args:
            path: the file.
            schema: what it holds at least.
            copied: work on a copy in memory of what the file holds at this moment: nothing is
                written, no lock is held, and a folder that cannot be written will do.

        Raises:
            UserError: not a database, read-only, disk full; a file to be copied is not there.
        """
        self.path = path
        self._lock = threading.RLock()
        with self._faults_in_words():
            if copied:
                connection = _copy_in_memory(path)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                connection = sqlite3.connect(
                    path, timeout=BUSY_TIMEOUT_SECONDS, check_same_thread=False
                )
            self._sqlite = SqliteUtils(connection)
            try:
                if not copied:
                    self._enable_write_ahead_log()
                # A kill -9 loses nothing in this mode; only a power cut may lose the last commit.
                self._sqlite.execute("PRAGMA synchronous=NORMAL")
                with self.transaction():
                    for statement in schema.split(";"):
                        if statement.strip():
                            self._sqlite.execute(statement)
            except BaseException:
                connection.close()
                raise

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Run a query and return all its rows."""
        with self._lock, self._faults_in_words():
            # Not sqlite-utils' query(): its savepoint is two statements more.
            cursor = self._sqlite.execute(sql, parameters)
            found = cursor.fetchall()
        names = [column[0] for column in cursor.description]
        for row in found:
            self._refuse_bytes(row)
        return [dict(zip(names, row, strict=True)) for row in found]

    def value(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Run a query and return the first column of its first row, or None when it has no row."""
        with self._lock, self._faults_in_words():
            row = self._sqlite.execute(sql, parameters).fetchone()
        if row is None:
            return None
        self._refuse_bytes(row)
        return row[0]

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run one writing statement and return how many rows it changed."""
        with self._lock, self._faults_in_words():
            return int(self._sqlite.execute(sql, parameters).rowcount)

    def record(self, kind: type[Stored], stored: Any, which: str) -> Stored:
        """Return a record from what a column or a row of this file holds.

        Args:
            kind: of the record.
            stored: its JSON; or a row, by column.
            which: what it is, for messages: "step 3".

        Raises:
            UserError: it was damaged, or written by another version.
        """
        try:
            if isinstance(stored, dict):
                return kind.model_validate(stored)
            return kind.model_validate_json(stored)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            said = f"{where}: {first['msg']}" if where else first["msg"]
            raise self.damaged(which, said) from error

    def damaged(self, which: str, why: str) -> UserError:
        """Return the error that says that what is stored here cannot be used."""
        return UserError(
            f"{self.path} is damaged, or of another version: {which} cannot be read ({why}); "
            "restore the file, or begin with a new directory"
        )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside happens whole or not at all; taken as writer from the start."""
        with self._lock, self._faults_in_words():
            # Not sqlite-utils' atomic(): its deferred BEGIN can fail with a busy snapshot midway.
            self._sqlite.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._sqlite.commit()
            except BaseException:
                self._sqlite.rollback()
                raise

    def copy_to(self, path: Path) -> None:
        """Copy all that is stored, as it is at this moment, to a new file.

        Raises:
            UserError: the file cannot be written.
        """
        with self._lock, self._faults_in_words(), contextlib.closing(sqlite3.connect(path)) as to:
            self._sqlite.conn.backup(to)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._sqlite.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refuse_bytes(self, values: Iterable[Any]) -> None:
        # All that is stored here is text and numbers; a damaged page may say otherwise.
        if bytes in map(type, values):
            raise self.damaged("a row", "it holds bytes where text or a number was stored")

    def _enable_write_ahead_log(self) -> None:
        # Sqlite does not wait for other processes here, whatever the connection's timeout.
        deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
        while True:
            try:
                self._sqlite.enable_wal()
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    @contextmanager
    def _faults_in_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise UserError(explained(self.path, str(error))) from error
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            raise UserError(
                f"{self.path} is not a sqlite database or is damaged ({error}); "
                "move it away, or name another directory"
            ) from error
        except OSError as error:
            raise UserError(
                f"cannot open {self.path}: {error.strerror}; name another directory"
            ) from error


def _copy_in_memory(path: Path) -> sqlite3.Connection:
    """Return a copy of all that a file holds."""
    made = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        # A write-ahead log needs a file beside it; where none can be made, nobody writes either.
        for how in ("mode=ro", "mode=ro&immutable=1"):
            try:
                origin = sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)
                with contextlib.closing(origin):
                    origin.backup(made)
                return made
            except sqlite3.OperationalError:
                if "immutable" in how or os.access(path.parent, os.W_OK):
                    raise
    except BaseException:
        made.close()
        raise
    raise AssertionError("one of the two ways returns or raises")


def explained(path: Path, message: str) -> str:
    """Return one line that says what sqlite complains of and how to mend it."""
    if "full" in message:
        return f"the disk is full while writing {path}; free some space, then resume"
    if "readonly" in message or "read-only" in message or "unable to open" in message:
        return f"cannot write {path} ({message}); make the directory writable or name another"
    if "locked" in message or "busy" in message:
        return f"{path} is locked by another process ({message}); wait for it to end, then resume"
    return f"sqlite failed on {path}: {message}; check the file and the disk, then resume"

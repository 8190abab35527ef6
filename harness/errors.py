"""The one exception a person sees: a request that cannot be served, with the way to mend it."""

from __future__ import annotations

import errno
import functools
import shlex
from typing import Any

from pydantic import TypeAdapter, ValidationError

LONGEST_SHOWN = 80


def shown(value: object) -> str:
    """Return a value as a message may show it: in few words, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # An integer of thousands of digits.
        return "a number too long to be shown"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]} ..."


def printable(text: str) -> str:
    """Return a text of anybody's as a terminal may show it: what would steer it is blank."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def in_shell(path: object) -> str:
    """Return a path as a command that is told is to have it: blanks and the like in quotes."""
    return shlex.quote(str(path))


def told_of(error: ValidationError, name: str = "") -> str:
    """Return in one line what a record refuses first; `name` is where the value stands."""
    first = error.errors(include_url=False)[0]
    where = ".".join([*filter(None, [name]), *map(str, first["loc"])])
    return f"{where}={shown(first.get('input'))}: {first['msg'].lower()}"


def unwritten(path: object, error: OSError) -> str:
    """Return that a file could not be written, why, and what to do: a full disk is not all."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "free some space" if full else "have it writable or choose another place"
    return f"cannot write {path}: {error.strerror or error}; {remedy}"


class UserError(RuntimeError):
    """Bad input or a machine that lacks something: one clear line, exit code 2, never a traceback.

    The message says what is wrong, where, and how to mend it, on a single line. A RuntimeError, so
    that the retry policy of a graph around does not try the same input again.

    Example:
        try:
            kernelblaster.optimize("no_such_task.py")
        except kernelblaster.UserError as error:
            print(error)
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(printable(message).split()))

    def model_dump(self) -> dict[str, str]:
        """Return the line as what a LangGraph server tells its clients of an error.

        The server keeps other exceptions' words to itself. Clients of its API read `message`, and
        clients of its MCP endpoint are shown `error` alone.
        """
        return {"error": str(self), "message": str(self)}


class BadValue(UserError, ValueError):
    """A value that cannot be written; a server tells its clients the words of a ValueError."""


def typed(kind: Any, name: str, value: object) -> Any:
    """Return a value as the type of what it is written to, records made of JSON.

    Args:
        kind: the type.
        name: of what it is written to, for the message.
        value: a record, or JSON values.

    Raises:
        BadValue: it is no such value.
    """
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise BadValue(told_of(error, name)) from error


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)

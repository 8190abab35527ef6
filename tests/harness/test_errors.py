"""The one line that a person sees, whatever went into it."""

from __future__ import annotations

import errno
import os

import pytest

from kernelblaster.harness.errors import UserError, printable, unwritten

STEERING = ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "a\rb", "\u202e", "\ud800"]


@pytest.mark.parametrize("text", STEERING)
def test_no_text_steers_a_terminal(text: str) -> None:
    assert printable(text).isprintable()
    assert str(UserError(f"{text}: no such file")).isprintable()


def test_what_can_be_read_stays() -> None:
    assert printable("größer\n\tµs") == "größer\n\tµs"


@pytest.mark.parametrize(
    "number, remedy",
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some space"),
        (errno.EROFS, "have it writable or choose another place"),
        (errno.EACCES, "have it writable or choose another place"),
        (errno.ENOTDIR, "have it writable or choose another place"),
    ],
)
def test_what_cannot_be_written_is_told_with_what_helps_there(number: int, remedy: str) -> None:
    told = unwritten("here", OSError(number, os.strerror(number)))
    assert told == f"cannot write here: {os.strerror(number)}; {remedy}"

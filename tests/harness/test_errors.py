"""The one line that a person sees, whatever went into it."""

from __future__ import annotations

import pytest

from kernelblaster.harness.errors import UserError, printable

STEERING = ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "a\rb", "\u202e", "\ud800"]


@pytest.mark.parametrize("text", STEERING)
def test_no_text_steers_a_terminal(text: str) -> None:
    assert printable(text).isprintable()
    assert str(UserError(f"{text}: no such file")).isprintable()


def test_what_can_be_read_stays() -> None:
    assert printable("größer\n\tµs") == "größer\n\tµs"

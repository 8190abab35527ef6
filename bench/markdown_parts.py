"""Markdown of texts that are anybody's: on their lines, with no markup in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..harness.errors import printable


def text(words_of: str) -> str:
    """Return a text of anybody's as Markdown shows it: on one line, none of it markup."""
    line = " ".join(printable(words_of).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", line)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [headers, ["---"] * len(headers)]
    shown = [" | ".join(line) for line in lines]
    shown += [" | ".join(text(cell) for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in shown)


def bullets(lines: Iterable[str]) -> str:
    """Return a list."""
    return "\n".join(f"- {text(line)}" for line in lines)

"""A candidate's text beside its parent's: the lines of a unified diff, each with its kind."""

from __future__ import annotations

import difflib
from typing import Literal, NamedTuple

LineKind = Literal["added", "removed", "same", "place"]


class DiffLine(NamedTuple):
    """One line of a diff."""

    kind: LineKind
    old: int | None
    """Number in the parent, from 1; None where the parent does not have it."""
    new: int | None
    """Number in the child."""
    text: str
    """Without its end; of a `place`, which function the lines after it are in."""


class Diff(NamedTuple):
    """How a text came of another."""

    lines: tuple[DiffLine, ...]
    added: int
    removed: int


def diff_of(parent: str, child: str, context: int = 3) -> Diff:
    """Return the changes with so many unchanged lines around each; none where they are equal."""
    old, new = parent.splitlines(), child.splitlines()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    lines: list[DiffLine] = []
    for group in matcher.get_grouped_opcodes(context):
        lines.append(DiffLine("place", None, None, _around(old, group[0][1])))
        for tag, start, end, new_start, new_end in group:
            if tag == "equal":
                lines += [
                    DiffLine("same", start + i + 1, new_start + i + 1, text)
                    for i, text in enumerate(old[start:end])
                ]
                continue
            removed = enumerate(old[start:end], start + 1)
            added = enumerate(new[new_start:new_end], new_start + 1)
            lines += [DiffLine("removed", number, None, text) for number, text in removed]
            lines += [DiffLine("added", None, number, text) for number, text in added]
    kinds = [line.kind for line in lines]
    return Diff(tuple(lines), kinds.count("added"), kinds.count("removed"))


def _around(lines: list[str], start: int) -> str:
    """Return the line at the left edge before a place: the function that the place is in."""
    for line in reversed(lines[:start]):
        if line[:1].isalpha() or line[:1] == "_":
            return line
    return ""

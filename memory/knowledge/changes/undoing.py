"""Undo what was written to a knowledge base: by a later entry, never by removing one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....harness.errors import UserError
from ...records.edits import Edit, Revert
from ...records.lessons import Lesson, Withdrawal
from ...records.update import KnowledgeUpdate
from ..entries import UPDATE
from ..journal import Entry
from ..knowledge_base import KnowledgeBase
from ..snapshots.contents import EDIT, LESSON, REVERT, WITHDRAWAL

SHORTEST = 4
"""Characters of an id, for it to mean something."""


UNDONE = frozenset({EDIT, LESSON, REVERT, WITHDRAWAL})
"""Kinds of entries that can be undone."""
LONGEST_NUMBER = 15
"""Digits of a sequence number; what has more can only be of an id."""


class Undone(NamedTuple):
    """What does not stand any more, or stands again."""

    update: KnowledgeUpdate
    edits: tuple[Edit, ...]
    lessons: tuple[Lesson, ...]
    again: int
    """Reverts and withdrawals undone: what they took away stands again."""


def undo(knowledge: KnowledgeBase, what: str, author: str) -> Undone:
    """Return what undoes an entry, not yet applied.

    Args:
        knowledge: the base.
        what: the beginning of the id of an edit, a lesson, a withdrawal or a revert, or a sequence
            number: of one of them, or of an update, which means all that it wrote.
        author: who undoes it.

    Raises:
        UserError: it means none of them, or several.
    """
    entries = [
        each._replace(body="") for each in knowledge.journal.entries()
        if each.kind in UNDONE or each.kind == UPDATE
    ]  # fmt: skip
    # A number and the beginning of an id may both be digits.
    meant = _numbered(entries, int(what)) if _is_number(what) else []
    named = _named(entries, what) if len(what) >= SHORTEST else []
    if meant and named:
        raise UserError(
            f"{what} is a sequence number and begins the id {named[0].id[:12]}: give more of the "
            f"id, or 0{what} for the number"
        )
    meant = meant or named
    if len({each.id for each in named}) > 1:
        raise UserError(f"{what} begins {len(named)} ids: give more of it")
    if not meant:
        raise UserError(
            f"{what} is no edit, lesson or update of {knowledge.directory}; `kb lessons` and "
            "`kb edits` list ids"
        )
    ids = {each.id for each in meant}
    stored = {each.id: each.content for each in knowledge.snapshot().stored_edits()}
    written = knowledge.written_lessons()
    # One that is named alone goes with all that it was merged with; of an update, its own.
    keys = {lesson.key for lesson in written if lesson.id in ids and len(ids) == 1}
    lessons = tuple(lesson for lesson in written if lesson.key in keys or lesson.id in ids)
    newest = knowledge.sequence()
    edits = [(name, stored[name]) for name in sorted(ids & stored.keys())]
    withdrawn = sorted({each.id for each in meant if each.kind == WITHDRAWAL})
    names = [*(name for name, _ in edits), *withdrawn]
    return Undone(
        KnowledgeUpdate(
            run=author,
            iteration=0,
            reverts=tuple(Revert(edit=name, author=author, at=newest) for name in names),
            withdrawals=tuple(
                Withdrawal(lesson=lesson.id, newest=newest) for lesson in lessons
            ),
        ),
        tuple(content for _, content in edits if not isinstance(content, Revert)),
        lessons,
        sum(isinstance(content, Revert) for _, content in edits) + len(withdrawn),
    )


def _is_number(what: str) -> bool:
    return what.isascii() and what.isdigit() and len(what) <= LONGEST_NUMBER


def _numbered(entries: Sequence[Entry], number: int) -> list[Entry]:
    """Return the entry of a sequence number, or all that the update of this number wrote."""
    meant = [each for each in entries if each.sequence == number]
    if meant and meant[0].kind == UPDATE:
        # Its entries stand before it, as many as no other update closed.
        earlier = (each.sequence for each in entries if each.kind == UPDATE)
        closed = max((each for each in earlier if each < number), default=0)
        meant = [each for each in entries if closed < each.sequence < number]
    return [each for each in meant if each.kind in UNDONE]


def _named(entries: Sequence[Entry], beginning: str) -> list[Entry]:
    """Return the entries whose ids begin so."""
    return [each for each in entries if each.kind in UNDONE and each.id.startswith(beginning)]

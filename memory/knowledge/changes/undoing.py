"""Undo what was written to a knowledge base: by a later entry, never by removing one."""

from __future__ import annotations

from typing import NamedTuple

from ....harness.errors import UserError
from ...records.edits import Edit, Revert
from ...records.lessons import Lesson, Withdrawal
from ...records.update import KnowledgeUpdate
from ..entries import UPDATE
from ..knowledge_base import KnowledgeBase
from ..snapshots.contents import EDIT, LESSON, REVERT, WITHDRAWAL

SHORTEST = 4
"""Characters of an id, for it to mean something."""


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
    entries = [each._replace(body="") for each in knowledge.journal.entries()]
    kinds = {EDIT, LESSON, REVERT, WITHDRAWAL}
    if what.isdigit() and len(what) < 16:
        meant = [each for each in entries if each.sequence == int(what)]
        if meant and meant[0].kind == UPDATE:
            # Its entries stand before it, as many as no other update closed.
            closed = max((each.sequence for each in entries
                          if each.kind == UPDATE and each.sequence < meant[0].sequence),
                         default=0)  # fmt: skip
            meant = [each for each in entries if closed < each.sequence < meant[0].sequence]
        meant = [each for each in meant if each.kind in kinds]
    else:
        long = len(what) >= SHORTEST
        meant = [each for each in entries if each.kind in kinds and each.id.startswith(what)]
        meant = meant if long else []
        if len({each.id for each in meant}) > 1:
            raise UserError(f"{what} begins {len(meant)} ids: give more of it")
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

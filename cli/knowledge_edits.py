"""kernelblaster kb lessons, edits, diff, revert: what was learned, and how it is undone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..harness.errors import UserError
from .flags import Json, KnowledgeDirectory, Measured, knowledge_directory
from .showing.output import print_json, say

if TYPE_CHECKING:
    from ..memory.knowledge.changes.difference import Difference
    from ..memory.knowledge.knowledge_base import KnowledgeBase
    from ..memory.knowledge.snapshots.snapshot import Snapshot

SHOWN = 10
"""Characters of an id."""
Technique = Annotated[str | None, typer.Option(help="Only those on this technique.")]


def kb_lessons(
    kb: KnowledgeDirectory = None,
    technique: Technique = None,
    state: Annotated[str | None, typer.Option(help="Only those on this state.")] = None,
    measured: Measured = False,
    as_json: Json = False,
) -> None:
    """List the lessons, one for each technique, class of operation and condition."""
    from ..memory.knowledge.policy.facts import comparable
    from ..tools.wording.experience import lesson_line
    from ..tools.workspace import read_knowledge

    kind = "cuda" if measured else "simulated"
    with read_knowledge(str(knowledge_directory(kb))) as knowledge:
        found = [
            lesson
            for lesson in knowledge.lessons(technique=technique, state=state)
            if comparable(lesson.device_kind, kind)
        ]
    if as_json:
        print_json({"lessons": [
            {"id": lesson.id, **lesson.model_dump(mode="json")} for lesson in found
        ]})  # fmt: skip
        return
    for lesson in found:
        say(f"{lesson.id[:SHOWN]} {lesson_line(lesson).removeprefix('- ')} [{lesson.author}]")
    if not found:
        say("no lessons")


def kb_edits(
    kb: KnowledgeDirectory = None, technique: Technique = None, as_json: Json = False
) -> None:
    """List the edits of the policy, with those that were undone."""
    from ..memory.records.edits import Revert
    from ..tools.wording.edits import edit_text, technique_of
    from ..tools.workspace import read_knowledge

    with read_knowledge(str(knowledge_directory(kb))) as knowledge:
        snapshot = knowledge.snapshot()
        stored = snapshot.stored_edits()
        standing = {edit.id for edit in snapshot.edits.standing}
        names = {each.id: each.name for each in snapshot.states()}
    found = [
        {
            "id": each.id,
            "sequence": each.sequence,
            "stands": each.content.id in standing,
            "text": edit_text(each.content, names),
            **each.content.model_dump(mode="json"),
        }
        for each in stored
        if not isinstance(each.content, Revert)
        and technique in (None, technique_of(each.content))
    ]
    if as_json:
        print_json({"edits": found})
        return
    for edit in found:
        gone = "" if edit["stands"] else "undone: "
        say(f"{edit['id'][:SHOWN]} ({edit['sequence']}) {gone}{edit['text']} [{edit['author']}]")
    if not found:
        say("no edits")


def kb_diff(
    before: Annotated[str, typer.Argument(help="A sequence number, or a base's directory.")],
    after: Annotated[str, typer.Argument(help="Another; of the same kind.")],
    kb: KnowledgeDirectory = None,
    measured: Measured = False,
    as_json: Json = False,
) -> None:
    """Show what a knowledge base has learned between two numbers, or two bases differ in."""
    from ..memory.knowledge.changes.difference import difference
    from ..tools.workspace import read_knowledge

    kind = "cuda" if measured else "simulated"
    numbers = [each.isdigit() and not Path(each).is_dir() for each in (before, after)]
    if numbers[0] != numbers[1]:
        raise UserError(f"{before} and {after}: give two sequence numbers, or two directories")
    if numbers[0]:
        with read_knowledge(str(knowledge_directory(kb))) as knowledge:
            found = difference(
                _snapshot_at(knowledge, before), _snapshot_at(knowledge, after), kind
            )
    else:
        with (
            read_knowledge(before) as one,
            read_knowledge(after) as other,
        ):
            found = difference(one.snapshot(), other.snapshot(), kind)
    _show(found, as_json)


def kb_revert(
    what: Annotated[
        str, typer.Argument(help="An id of `kb edits` or `kb lessons`, or a sequence number.")
    ],
    kb: KnowledgeDirectory = None,
    as_json: Json = False,
) -> None:
    """Undo an edit, a lesson, or a whole parameter update; undo a revert by its own number."""
    from ..memory.knowledge.changes.undoing import undo
    from ..tools.wording.edits import edit_text
    from ..tools.workspace import open_knowledge

    with open_knowledge(str(knowledge_directory(kb)), create=False) as knowledge:
        undone = undo(knowledge, what, "person")
        number = knowledge.apply_update(undone.update)
        reverts = [
            *(each.id for each in undone.update.reverts),
            *(each.id for each in undone.update.withdrawals),
        ]
    if as_json:
        print_json({
            "sequence": number,
            "edits": [edit.id for edit in undone.edits],
            "lessons": [lesson.id for lesson in undone.lessons],
            "reverts": reverts,
        })  # fmt: skip
        return
    for edit in undone.edits:
        say(f"undone: {edit_text(edit)}")
    for lesson in undone.lessons:
        say(f"withdrawn: {lesson.text}")
    if undone.again:
        say(f"{undone.again} undone: what they took away stands again")
    for name in reverts:
        say(f"to have it back: kernelblaster kb revert {name[:SHOWN]}")


def kb_consolidate(
    kb: KnowledgeDirectory = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would be done.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say once what the base says several times; all evidence stays, and `kb revert` undoes it."""
    from ..memory.knowledge.changes.consolidation import consolidation
    from ..tools.wording.edits import edit_text
    from ..tools.workspace import open_knowledge

    with open_knowledge(str(knowledge_directory(kb)), create=False) as knowledge:
        found = consolidation(knowledge)
        names = {each.id: each.name for each in knowledge.states()}
        number = None if dry_run or found.empty else knowledge.apply_update(found.update)
    lines = [
        *(f"{len(each.several)} lessons are one: {each.lesson.text}" for each in found.lessons),
        *(f"{len(each.several)} edits are {len(each.edits)}: {edit_text(each.edits[-1], names)}"
          for each in found.folded),
        *(edit_text(edit, names) for edit in found.states),
    ]  # fmt: skip
    if as_json:
        print_json({"sequence": number, "done": number is not None, "changes": lines})
        return
    for line in lines or ("nothing is said more than once",):
        say(line)
    if number is not None:
        say(f"to have it as it was: kernelblaster kb revert {number}")
    elif lines:
        say("nothing was changed: leave out --dry-run to do it")


def add_edit_commands(group: typer.Typer) -> None:
    """Add these commands to `kb`."""
    for name, function in (
        ("lessons", kb_lessons), ("edits", kb_edits), ("diff", kb_diff), ("revert", kb_revert),
        ("consolidate", kb_consolidate),
    ):  # fmt: skip
        group.command(name)(function)


def _snapshot_at(knowledge: KnowledgeBase, number: str) -> Snapshot:
    newest = knowledge.sequence()
    if int(number) > newest:
        raise UserError(f"{number}: the newest entry of {knowledge.directory} is {newest}")
    return knowledge.snapshot(int(number))


def _show(found: Difference, as_json: bool) -> None:
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    for line in found.lines or ("nothing differs",):
        say(line)

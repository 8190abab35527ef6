"""kernelblaster kb export, import, merge, prune: knowledge between bases, machines and programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..harness.errors import UserError
from ..harness.files import write_atomically
from .flags import Json, KnowledgeDirectory, Measured, knowledge_directory
from .showing.output import print_json, say

if TYPE_CHECKING:
    from ..memory.knowledge.knowledge_base import KnowledgeBase



def kb_export(
    file: Annotated[Path, typer.Argument(help="File to write.")],
    kb: KnowledgeDirectory = None,
    measured: Measured = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Evidence and the texts of winning kernels too.")
    ] = False,
) -> None:
    """Write what the base knows: to FILE.md for reading, to another as JSON for `kb import`."""
    from ..memory.knowledge.exchange.document import export
    from ..tools.wording.knowledge_page import knowledge_page
    from ..tools.workspace import read_knowledge

    page = file.suffix.lower() in (".md", ".markdown")
    if page and everything:
        raise UserError(f"{file} is a page for reading; --all goes with a JSON file")
    with read_knowledge(str(knowledge_directory(kb))) as knowledge:
        if page:
            text = knowledge_page(knowledge, measured=measured)
            told = "a page for reading"
        else:
            document = export(knowledge, measured=measured, whole=everything)
            text = document.model_dump_json(indent=1) + "\n"
            what = "all of it" if everything else "without evidence and sources"
            told = f"{len(document.entries)} entries, {what}"
    try:
        write_atomically(file, text.encode(), handed_on=True)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}; name another file") from error
    say(f"{file}: {told}, {len(text) / 1e3:.0f} kB")


def kb_import(
    file: Annotated[Path, typer.Argument(help="From `kb export`, or the paper's database.")],
    kb: KnowledgeDirectory = None,
    as_json: Json = False,
) -> None:
    """Take over an exported base, or the optimization_database.json of the paper's program."""
    from ..memory.knowledge.exchange.document import (
        document_of,
        is_document,
        read_document,
        sources_missing,
        take_over,
    )
    from ..memory.knowledge.exchange.published_database import is_published_database
    from ..tools.workspace import open_knowledge

    value = read_document(file)
    if not (is_document(value) or is_published_database(value)):
        raise UserError(
            f"{file} is neither an exported base nor an optimization_database.json: write one "
            "with `kb export`"
        )
    with open_knowledge(str(knowledge_directory(kb))) as knowledge:
        if is_document(value):
            document = document_of(value, file)
            told: dict[str, object] = {"entries": take_over(knowledge, document, file)}
            missing, named = sources_missing(knowledge, document)
            told["sources_missing"] = missing
            lines = [f"{told['entries']} entries taken over"]
            if missing:
                lines.append(
                    f"of {missing} of {named} kernels the source is not in the document: these "
                    "tasks do not start from them (`kb export --all` writes sources)"
                )
        else:
            told, lines = _published(knowledge, value, file)
    if as_json:
        print_json(told)
    else:
        for line in lines:
            say(line)


def kb_merge(
    other: Annotated[Path, typer.Argument(help="Directory of the other base; it stays as it is.")],
    kb: KnowledgeDirectory = None,
) -> None:
    """Take over what another base knows and this one does not."""
    from ..memory.knowledge.directory import EVIDENCE_FILE
    from ..memory.knowledge.exchange.identity import check_ids
    from ..tools.workspace import open_knowledge, read_knowledge

    ours = knowledge_directory(kb)
    if other.resolve() == ours.resolve():
        raise UserError(f"{other} is the base itself; name another directory")
    if not (other / EVIDENCE_FILE).is_file():
        raise UserError(f"{other} holds no {EVIDENCE_FILE}: name the directory of a base")
    with (
        read_knowledge(str(other)) as theirs,
        open_knowledge(str(ours)) as knowledge,
    ):
        try:
            check_ids(theirs.journal, with_marks=True)
        except UserError as error:
            raise UserError(f"{other}: {error}; nothing was taken over") from error
        say(f"{knowledge.merge(theirs)} entries taken over from {other}")


def kb_prune(
    directory: Annotated[Path, typer.Argument(help="New directory, for the smaller base.")],
    kb: KnowledgeDirectory = None,
    most: Annotated[
        int, typer.Option(min=1, help="Tries kept of each technique on each task and GPU.")
    ] = 20,
    harness: Annotated[
        str | None, typer.Option(help="Keep evidence of this version of the judge alone.")
    ] = None,
) -> None:
    """Write a smaller base: without repeats and all but the newest tries. This one stays."""
    from ..memory.knowledge.exchange.document import thinned
    from ..tools.workspace import open_knowledge, read_knowledge

    if directory.exists() and any(directory.iterdir()):
        raise UserError(f"{directory} is not empty; name a new directory")
    with read_knowledge(str(knowledge_directory(kb))) as knowledge:
        kept = thinned(knowledge, most=most, harness=harness)
        before = knowledge.journal.count()
        sources = knowledge.journal.sources()
    with open_knowledge(str(directory)) as smaller:
        smaller.journal.append(kept, sources)
    say(f"{directory}: {len(kept)} of {before} entries")


def kb_schema() -> None:
    """Print the JSON schema of what `kb export` writes."""
    from ..memory.knowledge.exchange.document import document_schema

    print_json(document_schema())


def add_exchange_commands(group: typer.Typer) -> None:
    """Add these commands to `kb`."""
    for name, function in (
        ("export", kb_export), ("import", kb_import), ("merge", kb_merge), ("prune", kb_prune),
        ("schema", kb_schema),
    ):  # fmt: skip
        group.command(name)(function)


def _published(
    knowledge: KnowledgeBase, value: object, file: Path
) -> tuple[dict[str, object], list[str]]:
    """Take over the paper's database; return what became of it, for machines and people."""
    from ..memory.knowledge.exchange.published_database import read_published_database

    name = f"import of {file.name}"
    try:
        taken = read_published_database(value, knowledge.seed(), run=name)
    except ValueError as error:
        raise UserError(f"{file} is damaged: {error}; take it from its origin again") from error
    knowledge.apply_update(taken.update)
    told: dict[str, object] = {
        "entries": len(taken.update.optimizations), "states": taken.states,
        "renamed": taken.renamed, "new": list(taken.new),
    }  # fmt: skip
    lines = [
        f"{len(taken.update.optimizations)} techniques listed under our states, as what GPUs said",
        *(f"situation {theirs}: {ours}" for theirs, ours in taken.states.items()),
        *(f"technique {theirs}: {ours}" for theirs, ours in taken.renamed.items()),
        f"new techniques: {', '.join(taken.new) or 'none'}",
    ]
    return told, lines

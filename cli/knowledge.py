"""kernelblaster kb: what the knowledge base holds."""

from __future__ import annotations

from typing import Annotated

import typer

from ..harness.errors import UserError
from .flags import Json, KnowledgeDirectory, Measured, knowledge_directory
from .knowledge_edits import add_edit_commands
from .knowledge_exchange import add_exchange_commands
from .showing.output import print_json, say
from .showing.terminal import Terminal

knowledge_app = typer.Typer(help="The knowledge base.", no_args_is_help=True)
add_exchange_commands(knowledge_app)
add_edit_commands(knowledge_app)


@knowledge_app.command("show")
def kb_show(
    state: Annotated[str | None, typer.Argument(help="Only this state.")] = None,
    kb: KnowledgeDirectory = None,
    measured: Measured = False,
    as_json: Json = False,
) -> None:
    """Show states, techniques, expected gains and lessons."""
    from ..tools.workspace import read_knowledge
    from .showing.tables import show_knowledge, show_lessons

    kind = "cuda" if measured else "simulated"
    with read_knowledge(str(knowledge_directory(kb))) as knowledge:
        states = knowledge.show(device_kind=kind)
        lessons = [] if state else knowledge.general_lessons(device_kind=kind)
    if state is not None:
        states = [entry for entry in states if state in (entry["id"], entry["name"])]
        if not states:
            raise UserError(f"the knowledge base has no state {state!r}; list them: kb show")
    if as_json:
        print_json({"states": states, **({"lessons": lessons} if state is None else {})})
    else:
        show_knowledge(Terminal(), states, "measured" if measured else "simulated")
        show_lessons(Terminal(), lessons)


@knowledge_app.command("stats")
def kb_stats(kb: KnowledgeDirectory = None, as_json: Json = False) -> None:
    """Count what the knowledge base holds."""
    from ..tools.workspace import read_knowledge
    from .showing.tables import show_counts

    directory = knowledge_directory(kb)
    with read_knowledge(str(directory)) as knowledge:
        counts = knowledge.stats()
    if as_json:
        print_json({"directory": str(directory), **counts})
    else:
        show_counts(Terminal(), str(directory), counts)


@knowledge_app.command("kernels")
def kb_kernels(
    task: Annotated[
        str | None, typer.Argument(help="Its name, the beginning of its id, or its file.")
    ] = None,
    kb: KnowledgeDirectory = None,
    measured: Measured = False,
    as_json: Json = False,
) -> None:
    """Show what was tried on a task's kernels and what came of it; without TASK, list the tasks."""
    from ..tools.workspace import read_knowledge
    from .kernels import kernels_of, show_kernels, show_tasks, tasks_of

    kind = "cuda" if measured else "simulated"
    with read_knowledge(str(knowledge_directory(kb))) as knowledge:
        if task is None:
            tasks = tasks_of(knowledge, kind)
            print_json({"tasks": tasks}) if as_json else show_tasks(Terminal(), tasks, kind)
        else:
            found = kernels_of(knowledge, task, kind)
            print_json(found.as_json()) if as_json else show_kernels(Terminal(), found, kind)


@knowledge_app.command("reindex")
def kb_reindex(kb: KnowledgeDirectory = None) -> None:
    """Rebuild the vector index from the evidence."""
    from ..tools.workspace import open_knowledge

    with open_knowledge(str(knowledge_directory(kb)), create=False) as knowledge:
        say(f"{knowledge.reindex()} texts indexed")

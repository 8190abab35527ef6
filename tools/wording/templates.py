"""The texts that every writer of a kernel is shown, whoever asks: templates of Jinja2."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import resources

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from ...harness.records.tasks import Task
from .contract import launch_signature, reference_text, task_header
from .rules import rules_context


def shared_text(name: str) -> str | None:
    """Return a template of this folder; None where it has none of this name."""
    file = resources.files(__package__).joinpath(name)
    return file.read_text(encoding="utf-8") if file.is_file() else None


def contract_text(task: Task, arch: str) -> str:
    """Return what a file for a task must define, what it may do, and how it is judged."""
    return _template("_contract.md").render(
        signature=launch_signature(task), arch=arch, **rules_context(task)
    )


def task_text(task: Task) -> str:
    """Return the reference, and what task.cuh defines at both sizes."""
    return _template("_task.md").render(
        name=task.name, reference=reference_text(task), header=task_header(task)
    )


def environment(text: Callable[[str], str | None]) -> Environment:
    """Return where templates are rendered; `text` reads one by its name."""
    return Environment(
        loader=FunctionLoader(text),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,  # Of included files: what follows begins on its own line.
        autoescape=False,
    )


@functools.cache
def _shared() -> Environment:
    return environment(shared_text)


def _template(name: str) -> Template:
    return _shared().get_template(name)

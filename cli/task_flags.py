"""Which tasks a command works on and how they are read: flags of four commands, declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from ..harness.errors import UserError, in_shell
from ..harness.records.readings import Mode, Precision, Reading
from ..harness.suites.finding import holds_problems
from ..harness.task.kernelbench import kernelbench_files, task_files

TaskPath = Annotated[
    Path | None, typer.Argument(help="PyTorch reference in KernelBench form, or a folder of them.")
]
ReferenceSeconds = Annotated[
    float | None,
    typer.Option(min=1, help="Longest that PyTorch may take for a task's answers; 600."),
]


class TaskFlags(NamedTuple):
    """What they came to."""

    dimensions: dict[str, int]
    reading: Reading
    reference_seconds: float | None
    kernelbench: Path | None
    level: int | None
    problem: int | None

    def tasks(self, task: Path | None) -> list[Path]:
        """Return the references that are named.

        Raises:
            UserError: none, or two ways of naming them.
        """
        if self.kernelbench is not None and task is None:
            return kernelbench_files(self.kernelbench, self.level, self.problem)
        if task is None or self.kernelbench is not None:
            raise UserError("name a task: its path, a folder of tasks, or --kernelbench DIR")
        if self.level is not None or self.problem is not None:
            raise UserError("--level and --problem go with --kernelbench DIR")
        if holds_problems(task):
            raise UserError(
                f"{task}: a folder of problems with workloads, which are tasks of a suite: "
                f"kernelblaster bench {in_shell(task)}"
            )
        return task_files(task)

    def one_task(self, task: Path | None) -> Path:
        """Return the one reference that is named. Raises UserError where there are more."""
        found = self.tasks(task)
        if len(found) > 1:
            raise UserError(
                f"{len(found)} tasks are named, and one is wanted: {found[0].name} or ..."
            )
        return found[0]


def with_task_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the flags of `_declared` in place of its parameter `flags`.

    Where it stands among the parameters, they stand in the help.
    """
    declared = inspect.signature(_declared, eval_str=True).parameters

    @functools.wraps(command)
    def called(**given: Any) -> None:
        flags = _declared(**{name: given.pop(name) for name in declared})
        command(**given, flags=flags)

    own = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for name, parameter in own.parameters.items():
        parameters += declared.values() if name == "flags" else [parameter]
    by_name = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    called.__signature__ = own.replace(parameters=by_name)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in by_name}
    return called


def _declared(
    dimensions: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE: a dimension at which candidates are verified."),
    ] = None,
    kernelbench: Annotated[
        Path | None, typer.Option(help="Checkout of KernelBench, in place of a task's path.")
    ] = None,
    level: Annotated[int | None, typer.Option(min=1, help="Of KernelBench.")] = None,
    problem: Annotated[int | None, typer.Option(min=1, help="Of a level of KernelBench.")] = None,
    mode: Annotated[
        Mode, typer.Option(help="Mode of the model; by default as its file leaves it.")
    ] = "file",
    dtype: Annotated[
        Precision, typer.Option(help="Type of floating numbers; by default as the file has them.")
    ] = "file",
    allow_degenerate: Annotated[
        bool,
        typer.Option("--allow-degenerate", help="Go on where the answer is known beforehand."),
    ] = False,
    reference_seconds: ReferenceSeconds = None,
) -> TaskFlags:
    return TaskFlags(
        dimensions=_sizes(dimensions or []),
        reading=Reading(mode=mode, dtype=dtype, allow_degenerate=allow_degenerate),
        reference_seconds=reference_seconds,
        kernelbench=kernelbench,
        level=level,
        problem=problem,
    )


def _sizes(pairs: list[str]) -> dict[str, int]:
    """Return {NAME: VALUE} of `--set NAME=VALUE` flags.

    Raises:
        UserError: a flag is not of that form, or its value is no positive integer.
    """
    parsed: dict[str, int] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        number = value.isascii() and value.isdecimal()
        if not (equals and name.isidentifier() and number and int(value) > 0):
            raise UserError(f"--set {pair}: write NAME=VALUE with a positive integer")
        parsed[name] = int(value)
    return parsed

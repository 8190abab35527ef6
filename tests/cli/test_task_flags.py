"""The flags about tasks: the same in every command that has them, and what they come to."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command

from kernelblaster.cli.app import app
from kernelblaster.cli.task_flags import TaskFlags, TaskPath, _declared, with_task_flags
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.readings import Reading


def command(*names: str) -> Any:
    found: Any = get_command(app)
    for name in names:
        found = found.commands[name]
    return found


@pytest.mark.parametrize("names", [("optimize",), ("evaluate",), ("task", "check")])
def test_each_command_has_all_of_them(names: tuple[str, ...]) -> None:
    of_command = {each.name: each for each in command(*names).params}
    of_others = {each.name: each for each in command("task", "show").params}
    for name in inspect.signature(_declared).parameters:
        mine, theirs = of_command[name], of_others[name]
        assert (mine.opts, mine.default, mine.help) == (theirs.opts, theirs.default, theirs.help)
    assert "flags" not in of_command


def test_a_command_is_given_what_they_came_to(tmp_path: Path) -> None:
    given: list[Any] = []
    small = typer.Typer()

    @small.command()
    @with_task_flags
    def look(
        task: TaskPath = None,
        *,
        flags: TaskFlags,
        loud: Annotated[bool, typer.Option("--loud")] = False,
    ) -> None:
        """Look."""
        given.extend([task, flags, loud])

    words = ["a.py", "--set", "N=3", "--set", "M=4", "--mode", "eval", "--dtype", "bf16", "--loud"]
    get_command(small).main(
        [*words, "--allow-degenerate", "--reference-seconds", "9"], standalone_mode=False
    )
    task, flags, loud = given
    assert task == Path("a.py") and loud is True
    assert flags.dimensions == {"N": 3, "M": 4} and flags.reference_seconds == 9.0
    assert flags.reading == Reading(mode="eval", dtype="bf16", allow_degenerate=True)
    assert flags.tasks(task) == [Path("a.py")] and flags.one_task(task) == Path("a.py")
    with pytest.raises(UserError, match="--set N: write NAME=VALUE"):
        get_command(small).main(["a.py", "--set", "N"], standalone_mode=False)
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("")
    with pytest.raises(UserError, match="2 tasks are named"):
        flags.one_task(tmp_path)

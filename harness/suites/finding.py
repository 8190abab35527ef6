"""From the name of a suite to its tasks: whose format it has is seen, not asked."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError, printable, shown
from ..files import read_regular
from ..task.kernelbench import kernelbench_files, task_files
from ..task.loading import LARGEST_REFERENCE_BYTES
from .hub import PREFIX, hub_tasks
from .records import LeftOut, SuiteTask, SuiteTasks
from .workloads import LAYOUT, is_problem, read_problems

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
"""A file's name has at most 255 bytes on most systems, and more follows the task's."""


def find_suite(
    origin: str,
    level: int | None = None,
    only: Sequence[str] = (),
    problem: int | None = None,
) -> SuiteTasks:
    """Return the tasks of a suite.

    Args:
        origin: a folder of references, a checkout of KernelBench, a folder of problems with
            workloads, one reference, or hub:OWNER/NAME.
        level: of KernelBench; by default levels 1 to 3.
        only: names of tasks, with * and ? as in file names; by default all.
        problem: of a level of KernelBench; by default all.

    Raises:
        UserError: there is no such suite, it has no task, or no task is called so.
    """
    left_out: list[LeftOut] = []
    if origin.startswith(PREFIX):
        name = origin.removeprefix(PREFIX)
        tasks = hub_tasks(name, level)
    else:
        path = Path(origin)
        name = path.resolve().name.removesuffix(".py")
        if not path.exists():
            raise UserError(
                f"{origin}: no such suite; give a folder of tasks, or {PREFIX}OWNER/NAME"
            )
        tasks, left_out = _local_tasks(path, level, problem)
    tasks, left_out = _named(origin, tasks, left_out, only)
    return SuiteTasks(
        name=name.rpartition("/")[2], origin=origin, tasks=tuple(tasks), left_out=tuple(left_out)
    )


def _local_tasks(
    path: Path, level: int | None, problem: int | None
) -> tuple[list[SuiteTask], list[LeftOut]]:
    levels = [place for place in (path, path / "KernelBench") if (place / "level1").is_dir()]
    if levels or level is not None or problem is not None:
        files = kernelbench_files(path, level, problem)
        return _tasks([(file, f"{file.parent.name}_{file.stem}") for file in files])
    if holds_problems(path):
        tasks, left_out = read_problems(path)
        if not tasks:
            why = f"; the first: {left_out[0].reason}" if left_out else ""
            raise UserError(f"{path}: {LAYOUT} are there, and no task can be made of them{why}")
        return tasks, left_out
    return _tasks([(file, file.stem) for file in task_files(path)])


def holds_problems(path: Path) -> bool:
    """Say whether a path is a folder of problems with workloads, or of folders of such."""
    if not path.is_dir():
        return False
    beneath = not any(path.glob("*.py")) and next(path.rglob("definition.json"), None) is not None
    return is_problem(path) or beneath


def _tasks(files: Sequence[tuple[Path, str]]) -> tuple[list[SuiteTask], list[LeftOut]]:
    """Return the tasks that files of some names hold, and those that cannot be read."""
    tasks: list[SuiteTask] = []
    left_out: list[LeftOut] = []
    for file, name in files:
        try:
            data = read_regular(file, LARGEST_REFERENCE_BYTES, "a PyTorch reference")
            tasks.append(SuiteTask(name=name, source=data.decode(), origin=str(file.resolve())))
        except (UserError, OSError, UnicodeDecodeError) as error:
            words = f"{file} cannot be read: {error}"
            left_out.append(LeftOut(name=shown(name), reason=printable(words)))
    return tasks, left_out


def _named(
    origin: str, tasks: list[SuiteTask], left_out: list[LeftOut], only: Sequence[str]
) -> tuple[list[SuiteTask], list[LeftOut]]:
    """Return the tasks that are asked for, each under a name of its own, and what is left out.

    Raises UserError where that leaves none.
    """
    seen: set[str] = set()
    fit: list[SuiteTask] = []
    left_out = [*left_out]
    for task in tasks:
        if not _NAME.fullmatch(task.name):
            words = "that cannot be the name of a task's folder: letters, digits, _ . and - can"
        elif task.name in seen:
            words = "another task is called so; rename one"
        else:
            seen.add(task.name)
            fit.append(task)
            continue
        left_out.append(LeftOut(name=shown(task.name), reason=f"{printable(task.origin)}: {words}"))
    tasks = fit
    if not tasks and left_out:
        raise UserError(
            f"{origin}: none of its tasks can be read; the first: {left_out[0].reason}"
        )
    for pattern in only:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in seen):
            some = ", ".join(sorted(seen)[:5])
            raise UserError(
                f"--tasks {pattern}: no task of {origin} is called so (it has: {some}, ...)"
            )
    if not only:
        return tasks, left_out
    return (
        [task for task in tasks if _wanted(task.name, only)],
        [each for each in left_out if _wanted(each.name, only)],
    )


def _wanted(name: str, only: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in only)

"""A person's file as `launch`: CUDA text as it is, a KernelBench solution restated."""

from __future__ import annotations

from pathlib import Path

from ...harness.errors import UserError, in_shell
from ...harness.records.tasks import Task
from .reading import NotRestated, is_solution, read_solution
from .restating import restate


def as_launch(path: Path, text: str, task: Task) -> str:
    """Return the CUDA text that a file holds for a task.

    Raises:
        NotRestated: it is a solution that cannot be restated.
        UserError: it is Python that holds no solution.
    """
    if is_solution(text):
        return restate(read_solution(text), task)
    if path.suffix == ".py":
        raise UserError(
            f"{path}: a Python file without `class ModelNew`; give a CUDA source that defines "
            "`launch`, or a KernelBench solution"
        )
    return text


def not_restated(path: str, obstacle: NotRestated, task: str) -> str:
    """Return what stands in the way, and what a person can do."""
    where = f":{obstacle.line}" if obstacle.line else ""
    return (
        f"{path}{where}: {obstacle.reason}; write `launch` yourself (its signature: "
        f"kernelblaster task show {in_shell(task)})"
    )

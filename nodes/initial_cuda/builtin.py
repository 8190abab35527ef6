"""Built-in initial CUDA: the direct translation of the reference, or why there is none."""

from __future__ import annotations

from ...harness.errors import UserError
from ...harness.records import Task
from ...tools.first_kernel.writer import NotWritten
from ...tools.first_kernel.writer import write_initial_cuda as write_builtin


def translate(task: Task) -> str:
    """Return the built-in first kernel of a task.

    Raises:
        UserError: nothing built in can write CUDA for this reference.
    """
    written = write_builtin(task)
    if isinstance(written, NotWritten):
        raise UserError(
            f"no initial CUDA for {task.name}: {written.reason}; "
            "give a first kernel with --start KERNEL.cu, or a model that writes one with "
            "--model initial_cuda=openai:NAME"
        )
    return written.source

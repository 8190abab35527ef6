"""Built-in initial CUDA: the direct translation of the reference, or why there is none."""

from __future__ import annotations

from ...harness.errors import UserError
from ...harness.records.tasks import Task
from ...harness.task.unseen import told_apart_now
from ...tools.first_kernel.kernels.missing import Sketch
from ...tools.first_kernel.writer import NotWritten, write_for_all_sizes
from ...tools.first_kernel.writer import write_initial_cuda as write_builtin
from ...tools.progress import report_progress


def translate(task: Task) -> str:
    """Return the built-in first kernel of a task.

    Raises:
        UserError: nothing built in can write CUDA for this reference.
    """
    written = write_builtin(task)
    if isinstance(written, NotWritten):
        what = "what is missing" if written.sketch else "one"
        raise UserError(
            f"no initial CUDA for {task.name}: {written.reason}; "
            f"give a first kernel with --start KERNEL.cu, or a model that writes {what} with "
            "--model initial_cuda=openai:NAME"
        )
    return written.source


def translations(task: Task) -> tuple[str, ...]:
    """Return the built-in first kernels of a task: the one that may hold at other sizes too before
    the one that is written from the task's own two variants, where they differ.

    Raises:
        UserError: nothing built in can write CUDA for this reference.
    """
    plain = translate(task)
    try:
        general = write_for_all_sizes(task, told_apart_now(task))
    except UserError as error:
        report_progress("note", text=f"which numbers are sizes was not found out: {error}")
        return (plain,)
    if isinstance(general, NotWritten):
        return (plain,)
    return tuple(dict.fromkeys((general.source, plain)))


def sketch(task: Task) -> Sketch | None:
    """Return the first kernel of a task without the operators that it lacks.

    None where it lacks none, or where not even the rest can be written.
    """
    written = write_builtin(task)
    return written.sketch if isinstance(written, NotWritten) else None

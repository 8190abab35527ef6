"""A task's inputs as files, for programs that run a candidate outside the worker."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from ..launching.buffers import as_bytes
from .task_context import TaskContext, values_of

WHOLE_BYTES = 64 << 20
"""Of a floating tensor no more is written: the program repeats it on the GPU. Gigabytes would take
longer through a file than all else that a profile takes. Integers and constants of the task, on
whose order or values a kernel may rely, are written whole."""


def write_inputs(context: TaskContext, scratch: Path) -> dict[str, str]:
    """Return {name: path} of the bytes of every input, parameter and buffer; written once.

    They are those of the first case: as get_inputs() gives them, the large ones in part (see
    WHOLE_BYTES). Raises OSError where there is no room for them.
    """
    folder = _folder(context.task.id, scratch)
    done = folder / "complete"
    names = [spec.name for spec in context.tensors if spec.role != "output"]
    if not done.exists():
        folder.mkdir(exist_ok=True)
        values = values_of(context.instance_of(context.plans()[0]))
        constants = context.task.variation.constants
        for name in names:
            content, repeats = as_bytes(values[name]), values[name].is_floating_point()
            if repeats and name not in constants:
                content = content[:WHOLE_BYTES]
            content.cpu().numpy().tofile(folder / f"{name}.bin")
        done.touch()
    return {name: str(folder / f"{name}.bin") for name in names}


def forget_inputs(task: str, scratch: Path) -> None:
    """Remove the files of a task, named by its id, where there are any."""
    shutil.rmtree(_folder(task, scratch), ignore_errors=True)


def _folder(task: str, scratch: Path) -> Path:
    return scratch / f"inputs-{hashlib.sha256(task.encode()).hexdigest()[:16]}"

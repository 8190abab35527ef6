"""How a model's caller finds what `launch` takes and gives: arguments, parameters, answers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ..records.record import Record
from ..records.tasks import Task
from .loading import run_reference


class Shape(Record):
    """A value made of tensors and other values, nested as forward() takes or returns it."""

    kind: Literal["tensor", "drawn", "value", "list", "tuple", "dict"]
    """What is drawn forward() makes itself; launch is given it."""
    name: str | None = None
    """Of a tensor its identifier in `launch`; of another value its text in Python."""
    keys: tuple[str, ...] = ()
    """Of a dictionary, each as text in Python."""
    items: tuple[Shape, ...] = ()
    """What it holds, in order."""


class TaskInterface(Record):
    """What forward() is given and returns, and where parameters lie."""

    forward: str
    """Qualified name of the function that is called: `Model.forward`."""
    arguments: tuple[Shape, ...]
    """Of forward(), in order, as get_inputs() gives them, and then what forward() draws."""
    outputs: Shape
    """What forward() returns."""
    qualified: dict[str, str]
    """Identifier of a parameter or buffer to its path in the model."""
    unregistered: tuple[str, ...] = ()
    """Paths of buffers that are no part of a state dictionary."""


def interface_now(task: Task) -> TaskInterface:
    """Return a task's interface, as PyTorch tells it. Raises UserError."""
    said = run_reference(
        Path(task.path), task.source, {}, None, Path(), reading=task.reading,
        asks={"interface": True},
    )  # fmt: skip
    return TaskInterface.model_validate(said["interface"])

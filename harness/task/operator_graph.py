"""A task's operators under one name: tasks of one graph differ in sizes and in names alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..records.identity import sha256_of_json
from ..records.programs import Program, ProgramNode
from ..records.record import Record
from ..records.tasks import Task

SIZE = "size"
"""Stands for every number that follows from the sizes of the task."""


class OperatorGraph(Record):
    """What a task computes, whatever its sizes and whatever its author called things."""

    sha256: str
    """Of the operators, of what each is given and of the numbers that are no sizes; empty where
    the reference could not be traced."""
    operators: tuple[str, ...]
    """Names of the operators, sorted, each as often as it stands in the graph."""


def operator_graph(task: Task) -> OperatorGraph:
    """Return the graph of a task's exported program.

    A number that is another at the dimensions of verification is a size, and so are those that say
    the shape of a result.
    """
    program = task.program
    if program is None:
        return OperatorGraph(sha256="", operators=())
    beside = _beside(program, task.verify_program)
    names = _given(task)
    told: list[Any] = []
    for place, node in enumerate(program.nodes):
        other = beside[place] if beside else node
        told.append([
            node.op,
            None if node.shape is None else len(node.shape),
            _canonical(list(node.args), list(other.args), names, node.shape),
            _canonical(dict(node.kwargs), dict(other.kwargs), names, node.shape),
        ])  # fmt: skip
        names[node.name] = f"result {place}"
    outputs = [names.get(name, name) for name in program.outputs]
    ranks = [(tensor.role, len(tensor.shape)) for tensor in task.full.tensors]
    return OperatorGraph(
        sha256=sha256_of_json([told, outputs, ranks]),
        operators=tuple(sorted(operator_name(node.op) for node in program.nodes)),
    )


def operator_name(op: str) -> str:
    """Return the name of an operator without its library, overload and underscore."""
    parts = op.split(".")
    return (parts[1] if len(parts) > 1 else parts[0]).removesuffix("_")


def _given(task: Task) -> dict[str, str]:
    """Return what the graph is given, by the task's own names."""
    names: dict[str, str] = {}
    for role in ("input", "parameter", "buffer"):
        for place, tensor in enumerate(task.full.of_role(role)):
            names[tensor.name] = f"{role} {place}"
    for place, scalar in enumerate(task.full.scalars):
        names[scalar] = f"scalar {place}"
    return names


def _beside(program: Program, other: Program | None) -> tuple[ProgramNode, ...]:
    """Return the same operators at other sizes, or none where they are not the same."""
    if other is None or [node.op for node in other.nodes] != [node.op for node in program.nodes]:
        return ()
    return other.nodes


def _canonical(
    value: Any, other: Any, names: Mapping[str, str], shape: tuple[int, ...] | None
) -> Any:
    """Return an argument without what follows from the sizes; `other` is it at other sizes."""
    if isinstance(value, dict):
        if set(value) == {"ref"}:
            return {"ref": names.get(value["ref"], value["ref"])}
        at_others = other if isinstance(other, dict) else value
        return {
            key: _canonical(each, at_others.get(key, each), names, shape)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        if _says_shape(value, shape):
            return SIZE
        alike = isinstance(other, list | tuple) and len(other) == len(value)
        others = other if alike else value
        return [
            _canonical(each, beside, names, shape)
            for each, beside in zip(value, others, strict=True)
        ]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return SIZE if is_number and value != other else value


def _says_shape(value: list[Any] | tuple[Any, ...], shape: tuple[int, ...] | None) -> bool:
    """Say whether a list is the shape of a result, or the end of it."""
    if not value or shape is None or len(value) > len(shape):
        return False
    end = shape[-len(value) :]
    sizes = [each for each in value if isinstance(each, int) and not isinstance(each, bool)]
    if len(sizes) != len(value) or max(sizes) <= 1 and len(value) < len(shape):
        return False
    return all(each in (size, -1) for each, size in zip(sizes, end, strict=True))

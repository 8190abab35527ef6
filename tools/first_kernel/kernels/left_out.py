"""Leaves an operation to somebody else: a launch of a function that is not written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..program.arrays import Array
from ..program.calls import Call, Number
from ..program.values import CannotWrite, Dim, Dims
from .missing import Unwritten
from .nests import Lazy, Scalar, Writing
from .pen import Pointer


def leave_out(
    write: Writing, call: Call, reason: str, results: Mapping[int, tuple[Dims, str]]
) -> dict[int, Array]:
    """Launch a missing function for one operation; returns its results by their places.

    Whatever tensors it reads are put in order in memory first.

    Args:
        call: with values for references.
        reason: what of it cannot be written; empty where nothing of it can.
        results: shape and dtype of each result that is read.

    Raises:
        CannotWrite: an argument is no number, tensor or list of them.
    """
    pointers = [
        Pointer(f"out{place}", write.new(call.name, dims, dtype), written=True)
        for place, (dims, dtype) in results.items()
    ]
    outputs = {place: pointer.array for place, pointer in zip(results, pointers, strict=True)}

    def named(value: Any) -> str:
        if isinstance(value, Array | Lazy):
            name = f"x{len(pointers) - len(outputs)}"
            pointers.append(Pointer(name, write.contiguous(value, call.name), written=False))
            return name
        if isinstance(value, tuple | list):
            return f"[{', '.join(map(named, value))}]"
        if isinstance(value, Scalar):
            return named(value.value)
        if isinstance(value, Dim):
            return f"{value.text} ({_both(value)})"
        if isinstance(value, Number):
            return value.text
        if value is None or isinstance(value, bool | int | float | str):
            return str(value)
        raise CannotWrite(reason or f"{call.where} is given what is no tensor of the program")

    arguments = [named(value) for value in call.args]
    arguments += [f"{key}={named(value)}" for key, value in call.kwargs.items()]
    op = f"{call.op}({', '.join(arguments)})"
    left = Unwritten(call.base, op, call.line, reason, tuple(pointers))
    write.launches.append(left)
    return outputs


def _both(dim: Dim) -> str:
    return f"{dim.full}, {dim.verify} at small dimensions"

"""A reference as a straight list of operations."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from .record import Record


class ProgramNode(Record):
    """One ATen operation of the exported reference."""

    name: str
    op: str
    """ATen overload as printed by torch.export, for example `aten.softmax.int`."""
    args: tuple[Any, ...] = ()
    """JSON values; a reference to another value is {"ref": NAME}."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    shape: tuple[int, ...] | None = None
    """Shape of the (first) result; None where the result is no tensor."""
    dtype: str | None = None
    line: int | None = None
    """1-based line of the reference that it comes from; None where that is not known."""


class Program(Record):
    """The reference as a straight list of ATen operations; tensor names are those of TensorSpec."""

    nodes: tuple[ProgramNode, ...]
    outputs: tuple[str, ...]
    """Names of the values returned, in order; output tensor i is `out<i>`."""

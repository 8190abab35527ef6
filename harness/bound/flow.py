"""A reference's program as values that flow into one another, changes in place resolved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..records.programs import Program
from ..records.tensors import TensorSpec

MOVES = frozenset({
    "view", "reshape", "_unsafe_view", "view_as", "unsqueeze", "squeeze", "flatten", "unflatten",
    "permute", "transpose", "t", "numpy_T", "mT", "swapaxes", "movedim", "contiguous", "clone",
    "to", "_to_copy", "type_as", "alias", "detach", "lift_fresh_copy", "flip", "roll", "expand",
    "expand_as", "repeat", "tile", "broadcast_to", "broadcast_tensors", "pixel_shuffle",
    "pixel_unshuffle", "channel_shuffle", "dropout", "feature_dropout",
})  # fmt: skip
"""Operators whose result is made of the elements of their first argument, each as it is."""
PARTS = frozenset({"select", "slice", "narrow"})
"""Operators whose result is a part of their argument along one dimension."""
SPLITS = frozenset({"split", "split_with_sizes", "chunk", "unbind", "tensor_split"})
"""Operators that give parts of their argument, all of which together are the whole."""
_VIEWS = (MOVES - {"clone", "flip", "roll", "repeat", "tile", "dropout"}) | PARTS


@dataclass(frozen=True)
class Operation:
    """One operator that is called."""

    name: str
    """Of its first result."""
    op: str
    """Its name alone: matmul, add."""
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """Return an argument, given in order or by name."""
        value = self.args[place] if place < len(self.args) else self.kwargs.get(name)
        return default if value is None else value

    @property
    def values(self) -> tuple[str, ...]:
        """Names of the values that it is given, in order."""
        return tuple(refs((self.args, list(self.kwargs.values()))))


def refs(value: Any) -> Iterator[str]:
    """Yield the names of values that an argument refers to."""
    if isinstance(value, Mapping):
        if isinstance(value.get("ref"), str):
            yield value["ref"]
    elif isinstance(value, list | tuple):
        for each in value:
            yield from refs(each)


class Flow:
    """Operators in order, the shapes of all values, and who reads each."""

    def __init__(self, program: Program, tensors: tuple[TensorSpec, ...]) -> None:
        self.shapes = {each.name: each.shape for each in tensors if each.role != "output"}
        self.dtypes: dict[str, str] = {each.name: each.dtype for each in tensors}
        self.varying = {each.name for each in tensors if each.role in ("input", "parameter")}
        """Values that an input or a parameter has a part in."""
        self.operations: list[Operation] = []
        self._stands_for: dict[str, str] = {}
        self._taken: dict[tuple[str, str, str], str] = {}
        self._view_of: dict[str, str] = {}
        for node in program.nodes:
            op = node.op.split(".")[1] if "." in node.op else node.op
            self.shapes[node.name] = tuple(node.shape or ())
            self.dtypes[node.name] = node.dtype or "float32"
            args, kwargs = self._resolved(node.args), self._resolved(node.kwargs)
            made = Operation(node.name, op.removesuffix("_"), args, kwargs)
            target = next(refs(node.args[:1]), None)
            same = self._known(made)
            if same is None:
                self.operations.append(made)
            else:
                self._stands_for[node.name] = same
            if self.varying.intersection(made.values):
                self.varying.add(node.name)
            if target is None:
                continue
            if op.endswith("_") and not op.endswith("__"):
                self._changed(target, node.name)
            elif op in _VIEWS:
                self._view_of[node.name] = target
        self.outputs = tuple(self._stands_for.get(name, name) for name in program.outputs)
        self.by_name = {each.name: each for each in self.operations}
        self.readers: dict[str, list[Operation]] = {}
        for each in self.operations:
            for name in dict.fromkeys(each.values):
                self.readers.setdefault(name, []).append(each)

    def numel(self, name: str) -> int:
        """Return the number of elements of a value; of an operator's first result."""
        return math.prod(self.shapes[name])

    def _known(self, made: Operation) -> str | None:
        """Return the value that a part is: the whole, or one that was taken before."""
        if made.op not in PARTS:
            return None
        source = made.values[0]
        if made.op == "slice" and self.shapes[source] == self.shapes[made.name]:
            return source
        first = self._taken.setdefault((made.op, repr(made.args), repr(made.kwargs)), made.name)
        return None if first == made.name else first

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            if isinstance(value.get("ref"), str):
                return {"ref": self._stands_for.get(value["ref"], value["ref"])}
            return {key: self._resolved(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return tuple(self._resolved(each) for each in value)
        return value

    def _changed(self, target: str, result: str) -> None:
        """Let a value, and what it is a view of, stand for what was written to it."""
        self._stands_for[target] = result
        while target in self._view_of:
            whole = self._view_of[target]
            before = self._stands_for.get(whole, whole)
            after = f"{whole} after {result}"
            self.shapes[after], self.dtypes[after] = self.shapes[whole], self.dtypes[whole]
            given = ({"ref": before}, {"ref": result})
            self.operations.append(Operation(after, "written_over", given, {}))
            self._stands_for[whole] = after
            target, result = whole, after

"""Evaluates constant expressions of a source for both variants of the task."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tree_sitter import Node

from ....harness.records.tasks import Task, TaskVariant
from ....harness.task.names import constants_of
from .syntax import TREES, Source, declarations, descendants, squeezed, text_of

_BINARY: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__,
    ast.Div: int.__floordiv__, ast.Mod: int.__mod__,
}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """An integer in the full and in the verify variant."""

    full: int
    verify: int


class Constants:
    """Names with a known integer value: those of task.cuh and the source's own constants."""

    def __init__(self, source: Source, task: Task) -> None:
        full, verify = _task_constants(task.full), _task_constants(task.verify)
        self._known = {name: Pair(full[name], verify[name]) for name in full if name in verify}
        self.own = _own_of(source.root)

    def pair(self, text: str, depth: int = 0) -> Pair | None:
        """Return the value of a constant expression in both variants; None when it has none."""
        clean = re.sub(r"(?<=\d)[uUlL]+\b", "", squeezed(text))
        if depth > 16:
            return None
        try:
            tree = ast.parse(clean, mode="eval").body
        except (SyntaxError, ValueError):
            return None
        return self._value(tree, depth)

    def equal(self, left: str, right: str) -> bool:
        """Whether two expressions are the same text, or the same number in both variants."""
        if squeezed(left) == squeezed(right):
            return True
        value = self.pair(left)
        return value is not None and value == self.pair(right)

    def _value(self, tree: ast.expr, depth: int) -> Pair | None:
        if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
            return Pair(tree.value, tree.value)
        if isinstance(tree, ast.Name):
            if tree.id in self.own:
                return self.pair(self.own[tree.id], depth + 1)
            return self._known.get(tree.id)
        operation = _BINARY.get(type(tree.op)) if isinstance(tree, ast.BinOp) else None
        if not isinstance(tree, ast.BinOp) or operation is None:
            return None
        left, right = self._value(tree.left, depth), self._value(tree.right, depth)
        if left is None or right is None:
            return None
        if isinstance(tree.op, (ast.Div, ast.Mod)) and 0 in (right.full, right.verify):
            return None
        return Pair(operation(left.full, right.full), operation(left.verify, right.verify))


@functools.lru_cache(maxsize=TREES)
def _own_of(root: Node) -> Mapping[str, str]:
    """Return the constants that a source defines, as text; every kernel of a file asks for them."""
    own: dict[str, str] = {}
    for node in root.named_children:
        if node.type == "preproc_def":
            name, value = (node.child_by_field_name(part) for part in ("name", "value"))
            if name is not None and value is not None:
                own[text_of(name)] = text_of(value).strip()
        for declared in declarations(node):
            if declared.value is not None and "const" in declared.type:
                own[declared.name] = text_of(declared.value)
    # Of what stands in a function; which of the branches of an #if holds is not known here.
    for function in descendants(root, "function_definition"):
        for node in descendants(function, "declaration"):
            for declared in declarations(node):
                if declared.value is not None and re.search(r"\bconst(expr)?\b", declared.type):
                    own.setdefault(declared.name, text_of(declared.value))
    return own


def _task_constants(variant: TaskVariant) -> dict[str, int]:
    names = constants_of(variant)
    found = {names.dimensions[name]: value for name, value in variant.dimensions.items()}
    for tensor in variant.tensors:
        name = tensor.name.upper()
        found[f"{name}_NUMEL"] = tensor.numel
        found[f"{name}_RANK"] = len(tensor.shape)
        for axis, size in enumerate(tensor.shape):
            found[f"{name}_SIZE_{axis}"] = size
    for scalar, value in variant.scalars.items():
        if isinstance(value, int) and not isinstance(value, bool):
            found[names.scalars[scalar]] = value
    return found

"""One thread for each row and column of a matrix: how a kernel finds its place."""

from __future__ import annotations

from dataclasses import dataclass

from tree_sitter import Node

from ..records import NotRecognised
from ..source.constants import Constants
from ..source.launches import BLOCK, components
from ..source.syntax import (
    Kernel,
    Launch,
    Statement,
    declarations,
    opened,
    operator,
    squeezed,
    statements,
    text_of,
)
from ..source.threads import is_global_index, is_thread_expression, resolved


@dataclass(frozen=True)
class Plane:
    """Where a thread is: variables, their type, how many rows and columns there are."""

    row: str
    column: str
    type: str
    rows: str
    columns: str
    rest: tuple[Statement, ...]
    """Statements of a thread that is inside."""


def read_plane(kernel: Kernel, launch: Launch, constants: Constants) -> Plane:
    """Return the place of a thread in a matrix; the column is what neighbours differ in.

    Raises:
        NotRecognised: the kernel finds its place in another way.
    """
    return _Reader(kernel, launch, constants).read()


class _Reader:
    def __init__(self, kernel: Kernel, launch: Launch, constants: Constants) -> None:
        self._kernel = kernel
        self._blocks = [
            frozenset({text, constants.own.get(text, text)}) for text in components(launch, BLOCK)
        ] + [frozenset()] * 3
        self._local: dict[str, str] = {}
        self._at: dict[str, str] = {}
        self._flat = ""
        self._flat_count = ""
        self._type = "int"

    def read(self) -> Plane:
        listed = statements(self._kernel.body)
        bounds: dict[str, str] = {}
        while listed:
            node = listed[0].node
            if node.type == "comment":
                listed.pop(0)
                continue
            if node.type == "declaration" and self._position(node):
                listed.pop(0)
                continue
            if node.type != "if_statement":
                break
            checked, inside = self._check(node, listed[1:])
            if not checked:
                break
            listed.pop(0)
            bounds.update(checked)
            if inside is not None:
                listed = inside
                break
        if self._flat:
            return self._from_flat(bounds, listed)
        names = {axis: name for name, axis in self._at.items()}
        if "x" not in names or "y" not in names:
            raise NotRecognised("the kernel has no thread for each row and column")
        row, column = names["y"], names["x"]
        if row not in bounds or column not in bounds:
            raise NotRecognised("the kernel does not check its row and column")
        return Plane(row, column, self._type, bounds[row], bounds[column], tuple(listed))

    def _from_flat(self, bounds: dict[str, str], listed: list[Statement]) -> Plane:
        """Place from `row = i / COLS; col = i % COLS` with `i < ROWS * COLS`."""
        row, column = self._at.get("/", ""), self._at.get("%", "")
        while listed and not (row and column) and self._position(listed[0].node):
            listed.pop(0)
            row, column = self._at.get("/", ""), self._at.get("%", "")
        if not row or not column or self._flat not in bounds:
            raise NotRecognised("the kernel has no thread for each row and column")
        whole = bounds[self._flat]
        rows = f"({whole}) / ({self._flat_count})"
        return Plane(row, column, self._type, rows, self._flat_count, tuple(listed))

    def _position(self, node: Node) -> bool:
        """Take in the declaration of a variable that says where the thread is."""
        declared = declarations(node)
        if len(declared) != 1 or declared[0].value is None:
            return False
        name, value = declared[0].name, declared[0].value
        inner = opened(value)
        if self._flat and inner.type == "binary_expression" and operator(inner) in ("/", "%"):
            left, right = inner.child_by_field_name("left"), inner.child_by_field_name("right")
            if left is not None and right is not None and text_of(left) == self._flat:
                count = text_of(opened(right))
                if self._flat_count and squeezed(self._flat_count) != squeezed(count):
                    return False
                self._flat_count = count
                self._at[operator(inner)] = name
                return True
        text = resolved(text_of(value), self._local)
        if not is_thread_expression(text):
            return False
        for position, axis in enumerate(("x", "y")):
            if is_global_index(text, axis, self._blocks[position]):
                self._at[name] = axis
                self._type = declared[0].type.replace("const", "").strip()
                if axis == "x" and len(self._blocks) == 4:
                    self._flat = name
                return True
        self._local[name] = text
        return True

    def _check(
        self, node: Node, rest: list[Statement]
    ) -> tuple[dict[str, str], list[Statement] | None]:
        """Return the bounds that an `if` checks, and the statements inside it."""
        condition = node.child_by_field_name("condition")
        body = node.child_by_field_name("consequence")
        if condition is None or body is None or node.child_by_field_name("alternative"):
            return {}, None
        returns = text_of(body).strip("{} \n;") == "return"
        joint, sign = ("||", ">=") if returns else ("&&", "<")
        if not returns and any(s.node.type != "comment" for s in rest):
            return {}, None
        bounds = {}
        for test in _parts(opened(condition.named_children[0]), joint):
            left, right = test.child_by_field_name("left"), test.child_by_field_name("right")
            if left is None or right is None or operator(test) != sign:
                return {}, None
            bounds[text_of(left)] = text_of(right)
        return bounds, None if returns else statements(body)


def _parts(node: Node, joint: str) -> list[Node]:
    node = opened(node)
    if node.type == "binary_expression" and operator(node) == joint:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        assert left is not None and right is not None
        return _parts(left, joint) + _parts(right, joint)
    return [node]

"""A sum of products over nested loops, one result a thread: recognised.

Convolutions are such: a result is a sum over channels and taps of one input and one weight, which
neighbouring results have in common. The intermediate form keeps the author's loops, conditions and
index arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tree_sitter import Node

from ....harness.records.tasks import Task
from ..records import Kernels, NotRecognised
from ..source.constants import Constants
from ..source.launches import block_name
from ..source.loops import counting_loop, is_zero
from ..source.syntax import (
    Declared,
    Kernel,
    Launch,
    Source,
    Statement,
    declarations,
    expression,
    factors,
    opened,
    operator,
    statements,
    text_of,
    uses,
)
from ..source.threads import is_global_index
from .recognised import recognised


@dataclass(frozen=True)
class Coordinate:
    """One axis of the results: its name in the kernel, its type, and how many there are."""

    name: str
    type: str
    size: str


@dataclass(frozen=True)
class Step:
    """What stands round the addition, from the outermost in: a loop, a condition, a name."""

    kind: Literal["loop", "condition", "name"]
    text: str
    """The loop's head, the condition, or the declaration."""
    name: str = ""
    """Of what is declared, or counted."""
    pragma: str = ""


@dataclass(frozen=True)
class SumBody:
    """The work of a thread: its place, the nest, and what becomes of the sum."""

    index: str
    type: str
    place: str
    """The index as the kernel computes it."""
    coordinates: tuple[Coordinate, ...]
    """The slowest first."""
    constants: tuple[str, ...]
    named: tuple[Step, ...]
    """What is computed of the coordinates before the sum."""
    accumulator: str
    steps: tuple[Step, ...]
    factors: tuple[str, str]
    epilogue: tuple[str, ...]


@dataclass(frozen=True)
class SumKernel:
    """A kernel of that kind in its source, with its launch."""

    source: Source
    kernel: Kernel
    launch: Launch
    block: str
    body: SumBody
    constants: Constants

    def has_several(self, coordinate: Coordinate) -> bool:
        """Whether there may be more than one result along an axis."""
        size = self.constants.pair(coordinate.size)
        return size is None or size.full > 1


def sum_kernels(text: str, task: Task, kernels: Kernels = ()) -> list[SumKernel]:
    """Return the kernels that add products, a result a thread, each with a source of its own.

    Raises:
        NotRecognised: there is none.
    """
    none = "no kernel adds products, one result a thread"
    return recognised(text, task, _read_one, none, kernels)


def _read_one(
    source: Source, constants: Constants, kernel: Kernel, launch: Launch
) -> SumKernel:
    block = block_name(source, constants, launch)
    body = _Reader(kernel, frozenset({block, constants.own.get(block, block)})).read()
    return SumKernel(source, kernel, launch, block, body, constants)


class _Reader:
    def __init__(self, kernel: Kernel, block: frozenset[str]) -> None:
        self._kernel, self._block = kernel, block
        self._index = self._type = self._place = self._count = self._accumulator = ""
        self._constants: list[str] = []
        self._coordinates: list[tuple[Coordinate, list[str]]] = []
        """Each with the sizes of those that are faster; a size is empty where it is what is left.
        """
        self._named: list[Step] = []

    def read(self) -> SumBody:
        listed = statements(self._kernel.body)
        loops = [place for place, each in enumerate(listed) if each.node.type == "for_statement"]
        if len(loops) != 1:
            raise NotRecognised("a thread has other than one nest of loops")
        for each in listed[: loops[0]]:
            self._before(each)
        if not self._accumulator:
            raise NotRecognised("no sum is declared before its loops")
        steps: list[Step] = []
        pair = self._nest([listed[loops[0]]], steps)
        after = tuple(each.text for each in listed[loops[0] + 1 :])
        if any(re.search(r"\b(return|__syncthreads)\b", line) for line in after):
            raise NotRecognised("a thread leaves, or waits, behind its sum")
        coordinates = self._in_order()
        if any(uses(text, self._index) for text in (*pair, *(each.text for each in steps))):
            raise NotRecognised("the sum depends on the thread's index itself")
        return SumBody(
            self._index, self._type, self._place, coordinates, tuple(self._constants),
            tuple(self._named), self._accumulator, tuple(steps), pair, after,
        )  # fmt: skip

    def _before(self, statement: Statement) -> None:
        node = statement.node
        if node.type == "comment":
            return
        if node.type == "if_statement" and self._index and not self._count:
            self._count = self._bound(node)
            return
        declared = declarations(node)
        if len(declared) != 1 or declared[0].value is None or declared[0].is_pointer:
            raise NotRecognised("something is done before the sum that is no plain name")
        (one,) = declared
        value = text_of(declared[0].value)
        if "constexpr" in one.type:
            self._constants.append(statement.text)
        elif is_global_index(value, "x", self._block) and not self._index:
            self._index, self._place = one.name, value
            self._type = one.type.replace("const", "").strip()
        elif self._index and uses(value, self._index):
            self._coordinates.append(self._coordinate(one, opened(declared[0].value)))
        elif one.type == "float" and is_zero(value) and not self._accumulator:
            self._accumulator = one.name
        elif "const" in one.type and "[" not in value:
            self._named.append(Step("name", statement.text, one.name))
        else:
            raise NotRecognised(f"{one.name} is set before the sum in a way that is not known")

    def _bound(self, node: Node) -> str:
        condition = node.child_by_field_name("condition")
        consequence = node.child_by_field_name("consequence")
        text = text_of(opened(condition.named_children[0])) if condition is not None else ""
        found = re.fullmatch(rf"{re.escape(self._index)}\s*>=\s*(.+)", text, re.DOTALL)
        leaves = consequence is not None and text_of(consequence).strip("{} \n") == "return;"
        if found is None or not leaves:
            raise NotRecognised("threads beyond the results do not leave at once")
        return found[1]

    def _coordinate(self, one: Declared, value: Node) -> tuple[Coordinate, list[str]]:
        """Return an axis read from `i % size`, `i / faster % size` or `i / faster`."""
        kind = one.type.replace("const", "").strip()
        size = ""
        if value.type == "binary_expression" and operator(value) == "%":
            size, value = text_of(_side(value, "right")), opened(_side(value, "left"))
        faster: list[str] = []
        if value.type == "binary_expression" and operator(value) == "/":
            faster, value = factors(_side(value, "right")), opened(_side(value, "left"))
        if text_of(value) != self._index:
            raise NotRecognised(f"{one.name} is no axis of the results")
        return Coordinate(one.name, kind, size), faster

    def _in_order(self) -> tuple[Coordinate, ...]:
        """Return the axes, the slowest first; they must take an index apart, and all of it."""
        left = factors(expression(self._count)) if self._count else []
        ordered: list[Coordinate] = []
        passed: list[str] = []
        for coordinate, faster in sorted(self._coordinates, key=lambda each: len(each[1])):
            if sorted(faster) != sorted(passed):
                raise NotRecognised("the thread's index is taken apart in another way")
            if not coordinate.size:
                rest = list(left)
                for size in passed:
                    if size in rest:
                        rest.remove(size)
                coordinate = Coordinate(coordinate.name, coordinate.type, " * ".join(rest) or "1")
            passed += factors(expression(coordinate.size))
            ordered.insert(0, coordinate)
        if len(ordered) < 2 or sorted(passed) != sorted(left):
            raise NotRecognised("the thread's index is not taken apart into all of its axes")
        return tuple(ordered)

    def _nest(self, listed: Sequence[Statement], steps: list[Step]) -> tuple[str, str]:
        """Read a block into steps, and return the factors of what its innermost part adds."""
        listed = [each for each in listed if each.node.type != "comment"]
        for each in listed[:-1]:
            if (skipped := _skipped(each.node)) is not None:
                steps.append(Step("condition", f"!({skipped})"))
                continue
            declared = declarations(each.node)
            if len(declared) != 1 or declared[0].value is None or "const" not in declared[0].type:
                raise NotRecognised("the loops do more than add a product")
            steps.append(Step("name", each.text, declared[0].name))
        if not listed:
            raise NotRecognised("a loop is empty")
        node = listed[-1].node
        loop = counting_loop(node)
        if loop is not None:
            head = (node.text or b"")[: loop.body.start_byte - node.start_byte].decode().rstrip()
            steps.append(Step("loop", head, loop.variable, listed[-1].pragma))
            return self._nest(statements(loop.body), steps)
        if node.type == "if_statement" and node.child_by_field_name("alternative") is None:
            condition = _side(node, "condition").named_children[0]
            steps.append(Step("condition", text_of(condition)))
            return self._nest(statements(_side(node, "consequence")), steps)
        return self._product(node)

    def _product(self, node: Node) -> tuple[str, str]:
        node = node.named_children[0] if node.type == "expression_statement" else node
        if node.type == "assignment_expression" and operator(node) == "+=":
            value = opened(_side(node, "right"))
            is_product = value.type == "binary_expression" and operator(value) == "*"
            if is_product and text_of(_side(node, "left")) == self._accumulator:
                pair = text_of(_side(value, "left")), text_of(_side(value, "right"))
                if all(self._is_single(factor) for factor in pair):
                    return pair
        raise NotRecognised("the loops do not add a product of two single-precision numbers")

    def _is_single(self, factor: str) -> bool:
        """Whether a factor is an element of a float tensor, or made a float of another type's."""
        pointers = [each.name for each in self._kernel.parameters if each.is_pointer]
        read = [name for name in pointers if uses(factor, name)]
        return len(read) == 1 and (
            self._kernel.element_type(read[0]) == "float"
            or re.match(r"__(half|bfloat16)2float\(|static_cast<float>\(", factor) is not None
        )


def _skipped(node: Node) -> str | None:
    """Return the condition under which a step of a loop is passed over: `if (...) continue;`."""
    if node.type != "if_statement" or node.child_by_field_name("alternative") is not None:
        return None
    if text_of(_side(node, "consequence")).strip("{} \n") != "continue;":
        return None
    return text_of(_side(node, "condition").named_children[0])


def _side(node: Node, field_name: str) -> Node:
    found = node.child_by_field_name(field_name)
    if found is None:
        raise NotRecognised("a statement could not be read")
    return found

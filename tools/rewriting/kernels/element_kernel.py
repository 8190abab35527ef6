"""A kernel that computes one element a thread: recognised, and written again with other work.

The intermediate form keeps the author's statements for one element. It says how wide an access is,
how many elements a thread takes, and whether threads stride over the grid.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tree_sitter import Node

from ....harness.records.tasks import Task
from ..records import Kernels, NotRecognised
from ..source.constants import Constants
from ..source.launches import (
    GRID,
    block_name,
    ceiling,
    components,
    fresh_constant,
    host_text,
    host_values,
    set_components,
)
from ..source.loops import counting_loop
from ..source.syntax import (
    Kernel,
    Launch,
    Source,
    Statement,
    declarations,
    descendants,
    indented,
    opened,
    operator,
    squeezed,
    statements,
    text_of,
    uses,
)
from ..source.threads import is_global_index, is_thread_expression, resolved
from .helpers import add_helpers
from .packs import Element, fits_pack, pack, unpack
from .recognised import recognised

WAVES = 16
"""Blocks of a grid-stride launch for each multiprocessor of a large GPU (132)."""


@dataclass(frozen=True)
class ElementBody:
    """The work of a thread in an elementwise kernel."""

    index: str
    type: str
    count: str
    lines: tuple[str, ...]
    width: int = 1
    items: int = 1
    stride: bool = False


@dataclass(frozen=True)
class ElementKernel:
    """An elementwise kernel in its source, with its launch."""

    source: Source
    constants: Constants
    kernel: Kernel
    launch: Launch
    block: str
    body: ElementBody
    width_name: str = ""
    items_name: str = ""


def element_kernels(
    text: str, task: Task, kernels: Kernels = (), shared: Source | None = None
) -> list[ElementKernel]:
    """Return the elementwise kernels of a source, each with edits to a source of its own or one.

    Raises:
        NotRecognised: there is none.
    """
    none = "no kernel computes one element a thread"
    return recognised(text, task, _read_one, none, kernels, shared)


def _read_one(
    source: Source, constants: Constants, kernel: Kernel, launch: Launch
) -> ElementKernel:
    block = block_name(source, constants, launch)
    return _Reader(source, constants, kernel, launch, block).read()


class _Reader:
    def __init__(
        self, source: Source, constants: Constants, kernel: Kernel, launch: Launch, block: str
    ) -> None:
        self._source, self._constants, self._kernel = source, constants, kernel
        self._launch, self._block = launch, block
        self._blocks = frozenset({block, constants.own.get(block, block)})
        self._local: dict[str, str] = {}
        self._width, self._items = "", ""

    def read(self) -> ElementKernel:
        body = self._body(statements(self._kernel.body))
        return ElementKernel(
            self._source, self._constants, self._kernel, self._launch, self._block, body,
            self._width, self._items,
        )  # fmt: skip

    def _body(self, listed: list[Statement]) -> ElementBody:
        index = kind = ""
        comments: list[str] = []
        while listed:
            statement = listed.pop(0)
            node = statement.node
            if node.type == "comment":
                comments.append(statement.text)
                continue
            declared = declarations(node)
            if node.type == "declaration" and len(declared) == 1 and declared[0].value is not None:
                value = resolved(text_of(declared[0].value), self._local)
                if is_thread_expression(value):
                    if self._is_index(value):
                        index, kind = declared[0].name, declared[0].type
                    else:
                        self._local[declared[0].name] = value
                    continue
            if node.type == "for_statement":
                return self._loop(node, index, listed)
            if node.type == "if_statement" and index:
                return self._guarded(node, index, kind, listed, comments)
            break
        raise NotRecognised("no statement checks the thread's index against a count")

    def _is_index(self, value: str) -> bool:
        """Whether a value is the index of the thread's first element, perhaps times a width."""
        match = re.fullmatch(r"\((.*)\)\*(VEC\w*)", squeezed(value))
        if match is not None:
            self._width = match[2]
            value = match[1]
        first = re.sub(r"blockIdx\.x\*blockDim\.x\*(ITEMS\w*)", self._note_items, squeezed(value))
        return is_global_index(first, "x", self._blocks)

    def _note_items(self, match: re.Match[str]) -> str:
        self._items = match[1]
        return "blockIdx.x*blockDim.x"

    def _guarded(
        self, node: Node, index: str, kind: str, rest: list[Statement], comments: list[str]
    ) -> ElementBody:
        condition = node.child_by_field_name("condition")
        inside = node.child_by_field_name("consequence")
        if condition is None or inside is None or node.child_by_field_name("alternative"):
            raise NotRecognised("the check of the index has an else")
        test = opened(condition.named_children[0])
        left, right = test.child_by_field_name("left"), test.child_by_field_name("right")
        if left is None or right is None or text_of(left) != index:
            raise NotRecognised("the kernel branches on something else than its index")
        returns = text_of(inside).strip("{} \n;") == "return"
        if returns and operator(test) == ">=":
            lines = rest
        elif operator(test) == "<" and not any(s.node.type != "comment" for s in rest):
            lines = statements(inside)
        else:
            raise NotRecognised("the check of the index has another form")
        return self._finish(index, kind, text_of(right), lines, inside, False, comments)

    def _loop(self, node: Node, index: str, rest: list[Statement]) -> ElementBody:
        loop = counting_loop(node)
        if loop is None or any(s.node.type != "comment" for s in rest):
            raise NotRecognised("the loop over the elements has another form")
        if self._items and loop.bound == self._items:
            return self._item_loop(loop.body)
        start = resolved(loop.start, {**self._local, index: "blockIdx.x*blockDim.x+threadIdx.x"}
                         if index else self._local)  # fmt: skip
        step = squeezed(resolved(loop.step, self._local)).replace("(", "").replace(")", "")
        step = re.sub(r"\*VEC\w*$", "", step)
        sizes = {"blockDim.x", *self._blocks}
        strides = {f"gridDim.x*{size}" for size in sizes} | {f"{size}*gridDim.x" for size in sizes}
        if not self._is_index(start) or step not in strides:
            raise NotRecognised("a loop does not stride over the grid")
        lines = statements(loop.body)
        kind = loop.type
        return self._finish(loop.variable, kind, loop.bound, lines, loop.body, True, [])

    def _item_loop(self, body: Node) -> ElementBody:
        listed = statements(body)
        first = declarations(listed[0].node)
        if len(listed) != 2 or len(first) != 1 or listed[1].node.type != "if_statement":
            raise NotRecognised("the loop over a thread's elements has another form")
        return self._guarded(listed[1].node, first[0].name, first[0].type, [], [])

    def _finish(
        self, index: str, kind: str, count: str, listed: list[Statement], owner: Node,
        stride: bool, comments: list[str],
    ) -> ElementBody:  # fmt: skip
        lines = [f"{s.pragma}\n{s.text}" if s.pragma else s.text for s in listed]
        if self._width:
            unpacked = unpack(owner, index)
            if unpacked is None:
                raise NotRecognised("the packs of the kernel have another form")
            lines = unpacked[0]
        text = "\n".join(lines)
        if re.search(r"__syncthreads|__shared__|__shfl|\breturn\b|\bfor\b|\bwhile\b", text):
            raise NotRecognised("a thread does more than compute one element")
        if re.search(r"threadIdx|blockIdx", resolved(text, self._local)):
            raise NotRecognised("the element depends on more than its index")
        if not uses(text, index):
            raise NotRecognised("the statements do not use the index")
        width = 1
        if self._width:
            width = 4 if "?4" in squeezed(self._constants.own.get(self._width, "")) else 2
        items = self._constants.pair(self._items) if self._items else None
        return ElementBody(
            index, kind.replace("const", "").strip(), count, (*comments, *lines), width,
            items.full if items else 1, stride,
        )  # fmt: skip


def known_count(found: ElementKernel) -> str:
    """Return the number of elements as a constant expression, or nothing where it is none."""
    text = host_text(found.kernel, found.launch, found.body.count)
    for whole in (text, host_values(found.launch, text)):
        if found.constants.pair(whole) is not None:
            return whole if whole == text else whole.strip("()")
    return ""


def written(found: ElementKernel, body: ElementBody) -> str:
    """Return the source with the elementwise kernel in another form, and its grid to match.

    Raises:
        NotRecognised: no access can be packed.
    """
    source = found.source
    constants = []
    width = found.width_name
    count_host = known_count(found) or host_text(found.kernel, found.launch, body.count)
    if body.width > 1:
        width = width or fresh_constant(source, "VEC")
        count = count_host if re.fullmatch(r"\w+", count_host) else f"({count_host})"
        text = f"{count} % 2 == 0 ? 2 : 1"
        text = f"{count} % 4 == 0 ? 4 : {text}" if body.width == 4 else text
        constants.append((found.width_name, width, text))
        add_helpers(source, set(), "thread", True)
    items = found.items_name
    if body.items > 1:
        items = items or fresh_constant(source, "ITEMS")
        constants.append((found.items_name, items, str(body.items)))
    for old, name, text in constants:
        _set_constant(source, found.kernel, old, name, text)
    lines = _lines(found, body, width, items)
    if found.width_name and body.width == 1:
        _drop_constant(source, found.width_name)
    if found.items_name and body.items == 1:
        _drop_constant(source, found.items_name)
    node = found.kernel.node
    start = node.start_byte
    before = node.prev_named_sibling
    if before is not None and before.type == "comment" and text_of(before).startswith("// One thr"):
        start = before.start_byte
    comment = _comment(body)
    head = found.kernel.head
    source.cut(start, node.end_byte, "\n".join([comment, f"{head} {{", *indented(lines), "}"]))
    factors = [found.block] + ([width] if body.width > 1 else [])
    factors += [items] if body.items > 1 else []
    grid = ceiling(count_host, " * ".join(factors))
    if body.stride:
        grid = (
            components(found.launch, GRID)[0]
            if found.body.stride
            else (_stride_grid(source, found.launch, grid))
        )
    set_components(source, found.launch, GRID, [grid])
    return source.result()


def _stride_grid(source: Source, launch: Launch, grid: str) -> str:
    """Write a variable with the blocks that all elements need, and return the grid bounded."""
    most = 132 * WAVES
    name = fresh_constant(source, "blocks")
    statement = launch.node.parent
    assert statement is not None
    margin = " " * statement.start_point[1]
    source.insert_before(statement, f"const int {name} = {grid};\n{margin}")
    return f"{name} < {most} ? {name} : {most}"


def _comment(body: ElementBody) -> str:
    what = "one element" if body.width == 1 else f"a pack of up to {body.width} elements"
    if body.items > 1:
        what = f"{body.items} elements" if body.width == 1 else (
            f"{body.items} packs of up to {body.width} elements")  # fmt: skip
    if body.stride:
        what += ", then strides over the grid"
    return f"// One thread computes {what}."


def _lines(found: ElementKernel, body: ElementBody, width: str, items: str) -> list[str]:
    inner = list(body.lines)
    if body.width > 1:
        packed = pack(
            inner, body.index, width, lambda e: _packable(found, e, body), lambda a: _type(found, a)
        )
        inner = [
            *packed.loads,
            "#pragma unroll",
            f"for (int {packed.lane} = 0; {packed.lane} < {width}; ++{packed.lane}) {{",
            *indented(list(packed.lines)),
            "}",
            *packed.stores,
        ]
    vec = f" * {width}" if body.width > 1 else ""
    first = "static_cast<long long>(blockIdx.x)" if "long" in body.type else "blockIdx.x"
    own = f"{first} * blockDim.x + threadIdx.x"
    start = f"({own}){vec}" if vec else own
    if body.stride:
        return [
            f"for ({body.type} {body.index} = {start}; {body.index} < {body.count};",
            f"     {body.index} += gridDim.x * blockDim.x{vec}) {{",
            *indented(inner),
            "}",
        ]
    if body.items > 1:
        own = f"{first} * blockDim.x * {items} + threadIdx.x"
        start = f"({own}){vec}" if vec else own
        return [
            f"const {body.type} first = {start};",
            "#pragma unroll",
            f"for (int item = 0; item < {items}; ++item) {{",
            f"    const {body.type} {body.index} = first + item * blockDim.x{vec};",
            f"    if ({body.index} < {body.count}) {{",
            *indented(inner, 2),
            "    }",
            "}",
        ]
    return [
        f"const {body.type} {body.index} = {start};",
        f"if ({body.index} < {body.count}) {{",
        *indented(inner),
        "}",
    ]


def _packable(found: ElementKernel, element: Element, body: ElementBody) -> bool:
    """Whether the element is at the index itself in a tensor that `launch` was given."""
    kind = found.kernel.element_type(element.array)
    return not element.rest and kind is not None and fits_pack(kind, body.width)


def _type(found: ElementKernel, array: str) -> str:
    kind = found.kernel.element_type(array)
    if kind is None:
        raise NotRecognised(f"the type of {array} is not known")
    return kind


def _set_constant(source: Source, kernel: Kernel, old: str, name: str, text: str) -> None:
    declared = _declaration_of(source, old) if old else None
    if declared is not None:
        source.replace(declared, f"constexpr int {name} = {text};")
        return
    before = kernel.node
    previous = before.prev_named_sibling
    while previous is not None and previous.type == "comment":
        before, previous = previous, previous.prev_named_sibling
    if previous is not None and previous.type == "declaration":
        source.cut(previous.end_byte, previous.end_byte, f"\nconstexpr int {name} = {text};")
    else:
        source.insert_before(before, f"constexpr int {name} = {text};\n\n")


def _drop_constant(source: Source, name: str) -> None:
    declared = _declaration_of(source, name)
    if declared is not None:
        source.replace(declared, "")


def _declaration_of(source: Source, name: str) -> Node | None:
    for node in descendants(source.root, "declaration"):
        if any(item.name == name for item in declarations(node)):
            return node
    return None

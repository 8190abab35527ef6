"""A matrix product with an epilogue, recognised as one thread a result, in tiles or in squares."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from tree_sitter import Node

from ....harness.records.tasks import Task
from ..records import Kernels, NotRecognised
from ..source.constants import Constants
from ..source.launches import BLOCK, GRID, block_size, components
from ..source.loops import CountingLoop, counting_loop, is_zero
from ..source.syntax import (
    Kernel,
    Launch,
    Source,
    Statement,
    declarations,
    descendants,
    expression,
    fragment,
    opened,
    operator,
    renamed,
    squeezed,
    statements,
    terms,
    text_of,
    uses,
)
from ..source.threads import resolved
from .plane import read_plane
from .recognised import recognised


@dataclass(frozen=True)
class ProductBody:
    """`acc = sum over k of left(row, k) * right(k, column)`, then the epilogue."""

    row: str
    column: str
    index: str
    """Variable of the sum."""
    type: str
    rows: str
    columns: str
    depth: str
    left: str
    right: str
    accumulator: str
    epilogue: tuple[str, ...]
    tile: int = 1
    """Side of the shared tiles; 1 for the naive form."""
    square: int = 1
    """Side of the square of results of one thread."""
    before: tuple[str, ...] = ()
    batches: str = ""
    """How many products there are, as the host counts them, where the kernel numbered its blocks
    through all of them."""


@dataclass(frozen=True)
class ProductKernel:
    """A product kernel in its source, with its launch."""

    source: Source
    constants: Constants
    kernel: Kernel
    launch: Launch
    body: ProductBody


def product_kernels(text: str, task: Task, kernels: Kernels = ()) -> list[ProductKernel]:
    """Return the product kernels of a source, each with edits to a source of its own.

    Raises:
        NotRecognised: there is none.
    """
    return recognised(text, task, _read_one, "no kernel is a plain matrix product", kernels)


def _read_one(
    source: Source, constants: Constants, kernel: Kernel, launch: Launch
) -> ProductKernel:
    body = _read(kernel, launch, constants)
    return ProductKernel(source, constants, kernel, launch, body)


def _read(kernel: Kernel, launch: Launch, constants: Constants) -> ProductBody:
    if "__shared__" not in text_of(kernel.node):
        numbered = _read_numbered(kernel, launch, constants)
        return numbered or _read_naive(kernel, launch, constants)
    if len(components(launch, BLOCK)) == 1:
        return _read_squares(kernel, constants)
    return _read_tiled(kernel, launch, constants)


BATCH = "static_cast<int>(blockIdx.z)"
"""Which of several products a block is of."""
MOST_BATCHES = 65535
"""Blocks along the third axis of a grid."""


def _read_numbered(kernel: Kernel, launch: Launch, constants: Constants) -> ProductBody | None:
    """Read one thread a result, in square blocks that are numbered along the grid's only axis.

    Row by row, and product by product where there are several, as first kernels have it. None where
    a block is no such square.
    """
    listed = statements(kernel.body)
    loops = [place for place, each in enumerate(listed) if each.node.type == "for_statement"]
    lengths = block_size(constants, launch)
    side = math.isqrt(lengths[0])
    if len(loops) != 1 or len(lengths) != 1 or side * side != lengths[0]:
        return None
    tiles: dict[str, str] = {}
    tile = row = column = kind = bounds = number = ""
    kept: list[str] = []
    for each in listed[: loops[0]]:
        declared = declarations(each.node)
        one = declared[0] if len(declared) == 1 else None
        text = squeezed(text_of(one.value)) if one is not None and one.value is not None else ""
        down = re.fullmatch(rf"(\w+)/(\w+)(%\w+)?\*{side}\+threadIdx\.x/{side}", text)
        across = re.fullmatch(rf"(\w+)%(\w+)\*{side}\+threadIdx\.x%{side}", text)
        if one is None:
            bounds = bounds or squeezed(text_of(each.node))
        elif counted := re.fullmatch(rf"\((\w+)\+{side - 1}\)/{side}", text):
            tiles[one.name] = counted[1]
        elif text == "blockIdx.x":
            tile = one.name
        elif tile and down and down[1] == tile and down[2] in tiles:
            row, kind = one.name, one.type.replace("const", "").strip()
        elif tile and across and across[1] == tile and across[2] in tiles:
            column, wide = one.name, across[2]
        elif tile and re.fullmatch(rf"{tile}/\((\w+)\*(\w+)\)", text):
            number = one.name
        elif "constexpr" not in one.type:
            kept.append(each.text)
    if not row or not column or len(tiles) != 2:
        return None
    columns = tiles.pop(wide)
    ((_, rows),) = tiles.items()
    if bounds != f"if({row}>={rows}||{column}>={columns})return;":
        return None
    return _numbered(listed[loops[0] :], kept, launch, constants, ProductBody(
        row, column, "", kind, rows, columns, "", "", "", "", (), before=(number,),
    ), side)  # fmt: skip


def _numbered(
    listed: list[Statement], kept: list[str], launch: Launch, constants: Constants,
    place: ProductBody, side: int,
) -> ProductBody:  # fmt: skip
    """Return the product of a place that is known; its batch becomes the grid's third axis."""
    loop = counting_loop(listed[0].node)
    if loop is None or loop.start != "0" or loop.step != "1":
        raise NotRecognised("the loop over the sum has another form")
    accumulator, left, right = _update(loop.body, loop.variable, place.row, place.column)
    kept = _without_zero(kept, accumulator)
    (number,) = place.before
    named = {number: BATCH} if number else {}
    for line in kept:
        for item in (d for n in fragment(line).named_children for d in declarations(n)):
            named[item.name] = text_of(item.value) if item.value is not None else item.name
    batches = ""
    if number:
        down, across = (f"(({n} + {side - 1}) / {side})" for n in (place.rows, place.columns))
        batches = f"({components(launch, GRID)[0]}) / ({down} * {across})"
        count = constants.pair(batches)
        if count is None or count.full > MOST_BATCHES:
            raise NotRecognised("there may be more products than a grid's third axis has blocks")
        kept = [f"const {place.type} {number} = {BATCH};", *kept]
    return replace(
        place, index=loop.variable, depth=loop.bound, left=resolved(left, named),
        right=resolved(right, named), accumulator=accumulator, batches=batches,
        epilogue=tuple(each.text for each in listed[1:]), before=tuple(kept),
    )  # fmt: skip


def _read_naive(kernel: Kernel, launch: Launch, constants: Constants) -> ProductBody:
    plane = read_plane(kernel, launch, constants)
    listed = list(plane.rest)
    loops = [p for p, s in enumerate(listed) if s.node.type == "for_statement"]
    if len(loops) != 1:
        raise NotRecognised("a thread has other than one loop")
    position = loops[0]
    loop = counting_loop(listed[position].node)
    if loop is None or loop.start != "0" or loop.step != "1":
        raise NotRecognised("the loop over the sum has another form")
    accumulator, left, right = _update(loop.body, loop.variable, plane.row, plane.column)
    kept = _without_zero([s.text for s in listed[:position]], accumulator)
    for line in kept:
        for item in (d for n in fragment(line).named_children for d in declarations(n)):
            if uses(left, item.name) or uses(right, item.name):
                raise NotRecognised(f"the factors depend on {item.name}, which is set before them")
    epilogue = tuple(s.text for s in listed[position + 1 :])
    return ProductBody(
        plane.row, plane.column, loop.variable, plane.type, plane.rows, plane.columns, loop.bound,
        left, right, accumulator, epilogue, before=tuple(kept),
    )  # fmt: skip


def _without_zero(lines: list[str], accumulator: str) -> list[str]:
    """Return the statements before the loop without the accumulator's, which must be zero."""
    kept, found = [], False
    for line in lines:
        block = fragment(line)
        declared = [d for node in descendants(block, "declaration") for d in declarations(node)]
        names = [item.name for item in declared]
        if accumulator in names:
            value = declared[names.index(accumulator)].value
            if value is None or not is_zero(text_of(value)) or len(names) != 1:
                raise NotRecognised("the sum does not start at zero")
            found = True
            continue
        if any(True for _ in descendants(block, "assignment_expression")):
            raise NotRecognised("something is assigned before the loop over the sum")
        kept.append(line)
    if not found:
        raise NotRecognised("the accumulator is not declared before its loop")
    return kept


def _update(body: Node, index: str, row: str, column: str) -> tuple[str, str, str]:
    """Return accumulator, left factor and right factor of the loop's body."""
    known: dict[str, str] = {}
    listed = statements(body)
    for statement in listed[:-1]:
        declared = declarations(statement.node)
        if len(declared) != 1 or declared[0].value is None:
            raise NotRecognised("the loop does more than add a product")
        known[declared[0].name] = text_of(declared[0].value)
    node = listed[-1].node
    node = node.named_children[0] if node.type == "expression_statement" else node
    target, value = node.child_by_field_name("left"), node.child_by_field_name("right")
    if node.type != "assignment_expression" or target is None or value is None:
        raise NotRecognised("the loop does more than add a product")
    accumulator = text_of(target)
    factors = _factors(value, operator(node), accumulator)
    texts = [renamed(text_of(opened(part)), known) for part in factors]
    left = [t for t in texts if uses(t, row) and uses(t, index) and not uses(t, column)]
    right = [t for t in texts if uses(t, column) and uses(t, index) and not uses(t, row)]
    if len(left) != 1 or len(right) != 1:
        raise NotRecognised("the product is not of one row and one column")
    return accumulator, left[0], right[0]


def _factors(value: Node, sign: str, accumulator: str) -> list[Node]:
    """Return the two factors of `acc += a * b`, `acc = acc + a * b` or `acc = fmaf(a, b, acc)`."""
    value = opened(value)
    if value.type == "call_expression" and re.match(r"(__)?fmaf?\b", text_of(value)):
        arguments = value.child_by_field_name("arguments")
        if arguments is not None and sign == "=":
            parts = arguments.named_children
            if len(parts) == 3 and text_of(parts[2]) == accumulator:
                return parts[:2]
    if sign == "=":
        summands = [term for term in terms(value) if text_of(term) != accumulator]
        if len(summands) != 1 or len(terms(value)) != 2:
            raise NotRecognised("the loop does more than add a product")
        value = opened(summands[0])
    elif sign != "+=":
        raise NotRecognised("the loop does more than add a product")
    left, right = value.child_by_field_name("left"), value.child_by_field_name("right")
    if value.type != "binary_expression" or operator(value) != "*" or not left or not right:
        raise NotRecognised("the loop does not add a product of two elements")
    return [left, right]


def _read_tiled(kernel: Kernel, launch: Launch, constants: Constants) -> ProductBody:
    """Read a product over square shared tiles, one result a thread."""
    size = block_size(constants, launch)
    if len(size) < 2 or size[0] != size[1] or len(set(size[:2])) != 1:
        raise NotRecognised("the block is no square tile")
    listed = statements(kernel.body)
    local: dict[str, str] = {}
    place: dict[str, str] = {}
    outer: CountingLoop | None = None
    epilogue: list[str] = []
    bounds: dict[str, str] = {}
    kind = "int"
    for statement in listed:
        node = statement.node
        if node.type == "declaration" and "__shared__" not in text_of(node):
            for item in declarations(node):
                if item.value is None:
                    continue
                text = renamed(text_of(item.value), local)
                if "threadIdx" in text and "blockIdx" in text:
                    axis = "x" if "threadIdx.x" in text else "y"
                    place[axis] = item.name
                    kind = item.type.replace("const", "").strip()
                elif "threadIdx" in text or "blockIdx" in text:
                    local[item.name] = text
        elif node.type == "for_statement" and outer is None:
            outer = counting_loop(node)
        elif node.type == "if_statement" and outer is not None:
            bounds, epilogue = _bounds(node)
    if outer is None or set(place) != {"x", "y"} or not bounds:
        raise NotRecognised("the shared tiles are used in another way")
    row, column = place["y"], place["x"]
    tile = components(launch, BLOCK)[0]
    parts = _tile_loads(outer, row, column, local, tile)
    accumulator = _accumulator(outer)
    depth = outer.bound if outer.step != "1" else _depth(outer.bound, tile)
    if row not in bounds or column not in bounds:
        raise NotRecognised("the kernel does not check its row and column")
    return ProductBody(
        row, column, "k", kind, bounds[row], bounds[column], depth, parts[0], parts[1],
        accumulator, tuple(epilogue), tile=size[0],
    )  # fmt: skip


def _read_squares(kernel: Kernel, constants: Constants) -> ProductBody:
    """Read the form that register_tiling writes: its loads name row, column and k as they are."""
    checks = list(descendants(kernel.body, "if_statement"))
    outer = next((counting_loop(n) for n in descendants(kernel.body, "for_statement")), None)
    loads = list(descendants(outer.body, "conditional_expression")) if outer else []
    text = text_of(kernel.body)
    sides = re.search(r"= blockIdx\.y \* (\w+);", text), re.search(r"sums\[(\w+)\]\[\1\] =", text)
    tile, square = (constants.pair(side[1]) if side is not None else None for side in sides)
    if len(loads) != 2 or len(checks) != 1 or outer is None or tile is None or square is None:
        raise NotRecognised("the shared tiles are used in another way")
    bounds, lines = _bounds(checks[0])
    if len(bounds) != 2 or not lines:
        raise NotRecognised("the kernel does not check its row and column")
    row, column = bounds
    factors = [load.child_by_field_name("consequence") for load in loads]
    left, right = (text_of(node) if node is not None else "" for node in factors)
    match = re.match(r"float (\w+) = sums\[m\]\[n\];", lines[0])
    index = _names_declared(kernel.body) & set(re.findall(r"\w+", left)) & set(
        re.findall(r"\w+", right)
    )  # fmt: skip
    if match is None or len(index) != 1:
        raise NotRecognised("the shared tiles are used in another way")
    kind = next(
        d.type.replace("const", "").strip() for n in descendants(checks[0].parent or kernel.body,
        "declaration") for d in declarations(n) if d.name == row
    )  # fmt: skip
    return ProductBody(
        row, column, index.pop(), kind, bounds[row], bounds[column], outer.bound, left, right,
        match[1], tuple(lines[1:]), tile=tile.full, square=square.full,
    )  # fmt: skip


def _names_declared(body: Node) -> set[str]:
    return {d.name for node in descendants(body, "declaration") for d in declarations(node)}


def _bounds(node: Node) -> tuple[dict[str, str], list[str]]:
    condition = node.child_by_field_name("condition")
    body = node.child_by_field_name("consequence")
    if condition is None or body is None:
        raise NotRecognised("the kernel does not check its row and column")
    found = {}
    for part in descendants(condition, "binary_expression"):
        left, right = part.child_by_field_name("left"), part.child_by_field_name("right")
        if operator(part) == "<" and left is not None and right is not None:
            found[text_of(left)] = text_of(right)
    return found, [s.text for s in statements(body)]


def _tile_loads(
    outer: CountingLoop, row: str, column: str, local: dict[str, str], tile: str
) -> tuple[str, str]:
    """Return the left and right element as functions of row, column and k."""
    names: dict[str, str] = {}
    left = right = ""
    for statement in statements(outer.body):
        for item in declarations(statement.node):
            if item.value is not None:
                names[item.name] = text_of(item.value)
        for node in descendants(statement.node, "conditional_expression"):
            value = node.child_by_field_name("consequence")
            if value is None:
                continue
            text = _in_terms_of_k(text_of(value), names, local, outer.variable, tile, row, column)
            if uses(text, row) and not uses(text, column):
                left = text
            elif uses(text, column) and not uses(text, row):
                right = text
    if not left or not right or not uses(left, "k") or not uses(right, "k"):
        raise NotRecognised("the shared tiles are filled in another way")
    return left, right


def _in_terms_of_k(
    text: str, names: dict[str, str], local: dict[str, str], step: str, tile: str, row: str,
    column: str,
) -> str:  # fmt: skip
    for _ in range(3):
        text = renamed(text, {name: f"({value})" for name, value in names.items()})
    text = squeezed(renamed(text, local))
    start = rf"(?:{step}\*{tile}|{tile}\*{step}|{step})"
    text = re.sub(rf"\(?{start}\+threadIdx\.[xy]\)?", "k", text)
    text = re.sub(rf"\(?blockIdx\.x\*{tile}\+threadIdx\.[xy]\)?", column, text)
    text = re.sub(rf"\(?blockIdx\.y\*{tile}\+threadIdx\.[xy]\)?", row, text)
    if "threadIdx" in text or uses(text, step):
        # the offset of the step may stand apart: row * K + t * TILE + threadIdx.x
        text = re.sub(rf"{start}\+threadIdx\.[xy]", "k", text)
    if "threadIdx" in text or "blockIdx" in text.replace("blockIdx.z", "") or uses(text, step):
        raise NotRecognised("an index of the shared tiles has another form")
    return re.sub(r"(?<=[\w)\]])([*+])(?=[\w(])", r" \1 ", text)


def _accumulator(outer: CountingLoop) -> str:
    for node in descendants(outer.body, "for_statement"):
        for assignment in descendants(node, "assignment_expression"):
            left = assignment.child_by_field_name("left")
            if left is not None and left.type == "identifier":
                return text_of(left)
    raise NotRecognised("no inner loop adds the products of a tile")


def _depth(bound: str, tile: str) -> str:
    match = re.fullmatch(rf"\(?\(?(\w+)(?:\+{tile}-1\))?/{tile}\)?", squeezed(bound))
    if match is None:
        raise NotRecognised("the number of tiles has another form")
    return match[1]


def is_contiguous(element: str, variable: str) -> bool:
    """Whether the element's address moves by one with the variable."""
    for node in descendants(expression(element), "subscript_expression"):
        indices = node.child_by_field_name("indices")
        if indices is not None:
            return variable in [text_of(term) for term in terms(indices.named_children[0])]
    return False

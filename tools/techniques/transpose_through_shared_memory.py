"""transpose_through_shared_memory: a 32 x 32 tile turns in shared memory, global access in rows."""

from __future__ import annotations

from dataclasses import dataclass

from ...harness.records.tasks import Task
from ..rewriting.kernels.packs import Element, elements
from ..rewriting.kernels.plane import Plane, read_plane
from ..rewriting.kernels.recognised import first_changed, recognised
from ..rewriting.records import Kernels, NotRecognised, Outcome, Parameters, Rewritten
from ..rewriting.source.constants import Constants
from ..rewriting.source.launches import (
    BLOCK,
    GRID,
    ceiling,
    fresh_constant,
    host_text,
    set_components,
)
from ..rewriting.source.syntax import (
    Kernel,
    Launch,
    Source,
    descendants,
    expression,
    fragment,
    indented,
    squeezed,
    text_of,
)
from .conditions import no_waste
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="transpose_through_shared_memory",
        moves=("-uncoalesced",),
        description=(
            "Read tiles along one axis and write them along the other through shared memory, so "
            "that both sides are coalesced."
        ),
        applies_when=(
            "A transpose or permuted copy where either loads or stores touch one sector per "
            "element."
        ),
        avoid_when=(
            "Both sides are already coalesced, or the permuted axis is not involved in the "
            "innermost dimension."
        ),
        side_effects="A barrier per tile, a tile of shared memory per block.",
        notes=(
            "Tile of 32x32 with 32x8 threads, each moving 4 elements; tile[32][33] so that reading "
            "a column does not hit one bank; swap block indices for the output."
        ),
        sources=('NVIDIA Technical Blog, "An Efficient Matrix Transpose in CUDA C/C++" (2013)',),
        change=_apply,
        unfit=no_waste,
    )


@dataclass(frozen=True)
class _Turn:
    """The access that goes across the rows, and what to write for the two phases."""

    source: Source
    kernel: Kernel
    launch: Launch
    plane: Plane
    lines: tuple[str, ...]
    element: Element
    kind: str
    """Element type of the tile."""


def _apply(source: str, task: Task, parameters: Parameters, kernels: Kernels) -> Outcome:
    def change(found: _Turn) -> Rewritten:
        note = f"{found.kernel.name}: turns tiles of 32 x 32 in shared memory"
        return Rewritten(source=_write(found), note=note)

    return first_changed(recognised(source, task, _read, "no kernel transposes", kernels), change)


def _read(source: Source, constants: Constants, kernel: Kernel, launch: Launch) -> _Turn:
    if "__shared__" in text_of(kernel.node):
        raise NotRecognised("the kernel uses shared memory already")
    plane = read_plane(kernel, launch, constants)
    lines = tuple(s.text for s in plane.rest)
    text = "\n".join(lines)
    if any(True for _ in descendants(fragment(text), "for_statement", "while_statement")):
        raise NotRecognised("a thread does more than move one element")
    across = elements(lines, plane.row)
    along = elements(lines, plane.column)
    stored = [e for e in (*across, *along) if e.stored]
    if len(stored) != 1 or stored[0].loaded:
        raise NotRecognised("the kernel stores other than one element")
    crossing = [e for e in across if plane.column in " ".join(e.rest)]
    if len(crossing) != 1:
        raise NotRecognised("no access, or more than one, goes across the rows")
    element = crossing[0]
    kind = kernel.element_type(element.array)
    if kind is None:
        raise NotRecognised(f"the type of {element.array} is not known")
    if element.stored:
        _assignment(lines[-1])
    return _Turn(source, kernel, launch, plane, lines, element, kind)


def _assignment(line: str) -> tuple[str, str]:
    """Return target and value of the statement that stores the element."""
    node = fragment(line).named_children[0].named_children[0]
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if node.type != "assignment_expression" or left is None or right is None:
        raise NotRecognised("the last statement does not store the element")
    return text_of(left), text_of(right)


def _write(turn: _Turn) -> str:
    source, kernel, launch, plane = turn.source, turn.kernel, turn.launch, turn.plane
    tile = fresh_constant(source, "TILE")
    steps = fresh_constant(source, "TILE_ROWS")
    inside = f"{plane.row} < {_side(plane.rows)} && {plane.column} < {_side(plane.columns)}"
    kind = f"const {plane.type}"
    across = (
        f"{kind} {plane.row} = blockIdx.y * {tile} + threadIdx.x;",
        f"{kind} {plane.column} = blockIdx.x * {tile} + step;",
    )
    along = (
        f"{kind} {plane.row} = blockIdx.y * {tile} + step;",
        f"{kind} {plane.column} = blockIdx.x * {tile} + threadIdx.x;",
    )
    if turn.element.stored:
        target, value = _assignment(turn.lines[-1])
        first = _phase(along, inside, [*turn.lines[:-1], f"tile[step][threadIdx.x] = {value};"])
        second = _phase(across, inside, [f"{target} = tile[threadIdx.x][step];"])
    else:
        moved = f"tile[step][threadIdx.x] = {turn.element.text};"
        used = [_substituted(line, turn.element, "tile[threadIdx.x][step]") for line in turn.lines]
        first, second = _phase(across, inside, [moved]), _phase(along, inside, used)
    head = f"for (int step = threadIdx.y; step < {tile}; step += {steps}) {{"
    lines = [
        f"__shared__ {turn.kind} tile[{tile}][{tile}];",
        head, *indented(first), "}",
        "__syncthreads();",
        head, *indented(second), "}",
    ]  # fmt: skip
    comment = "// One block turns one tile: read in rows, kept in shared memory, written in rows."
    start = kernel.node.start_byte
    before = kernel.node.prev_named_sibling
    if before is not None and text_of(before).startswith("// One thread"):
        start = before.start_byte
    constants = f"constexpr int {tile} = 32;\nconstexpr int {steps} = 8;\n\n"
    body = "\n".join([comment, f"{kernel.head} {{", *indented(lines), "}"])
    source.cut(start, kernel.node.end_byte, constants + body)
    columns, rows = (
        ceiling(host_text(kernel, launch, text), tile) for text in (plane.columns, plane.rows)
    )
    set_components(source, launch, GRID, [columns, rows])
    set_components(source, launch, BLOCK, [tile, steps])
    return source.result()


def _side(text: str) -> str:
    return text if expression(text).type in ("identifier", "number_literal") else f"({text})"


def _phase(place: tuple[str, str], inside: str, body: list[str]) -> list[str]:
    return [*place, f"if ({inside}) {{", *indented(body), "}"]


def _substituted(line: str, element: Element, text: str) -> str:
    """Return the statement with the element read from the tile."""
    data, shift = line.encode(), len(b"void f() {\n")
    edits = [
        (found.start_byte - shift, found.end_byte - shift)
        for found in descendants(fragment(line), "subscript_expression")
        if squeezed(text_of(found)) == squeezed(element.text)
    ]
    for start, end in sorted(edits, reverse=True):
        data = data[:start] + text.encode() + data[end:]
    return data.decode()

"""shared_memory_tiling: a block loads square tiles of both factors once and shares them."""

from __future__ import annotations

import re

from tree_sitter import Node

from ...harness.records import Task
from ..rewriting.launches import fresh_constant
from ..rewriting.product_kernel import ProductKernel, is_contiguous, product_kernels, set_plane
from ..rewriting.records import Inapplicable, Outcome, Parameters, Rewritten
from ..rewriting.rewrite import Rewrite
from ..rewriting.syntax import Source, declarations, indented, renamed, text_of, uses


def rewrite() -> Rewrite:
    """Return the technique; `tile` is the side of a tile and of the block."""
    return Rewrite("shared_memory_tiling", _apply, {"tile": (16, 32)})


def _apply(source: str, task: Task, parameters: Parameters) -> Outcome:
    tile = parameters["tile"]
    for found in product_kernels(source, task):
        if found.body.square > 1:
            return Inapplicable(reason="each thread computes a square of results already")
        if found.body.tile != tile:
            text = _write(found, tile)
            return Rewritten(source=text, note=f"{found.kernel.name}: tiles of {tile} x {tile}")
    return Inapplicable(reason=f"the product is tiled by {tile} already")


def _write(found: ProductKernel, size: int) -> str:
    body, source = found.body, found.source
    tile = tile_constant(found, "TILE")
    kind = body.type
    k_first = is_contiguous(body.left, body.index)
    column_first = is_contiguous(body.right, body.column) or not is_contiguous(
        body.right, body.index
    )
    left_names = {body.index: "left_k"}
    right_names = {body.index: "right_k"}
    loads = []
    if k_first:
        loads.append(f"const {kind} left_k = k0 + threadIdx.x;")
        left_at, left_row = "[threadIdx.y][threadIdx.x]", body.row
    else:
        loads += [f"const {kind} left_k = k0 + threadIdx.y;",
                  f"const {kind} left_row = blockIdx.y * {tile} + threadIdx.x;"]  # fmt: skip
        left_at, left_row = "[threadIdx.x][threadIdx.y]", "left_row"
        left_names[body.row] = "left_row"
    if column_first:
        loads.append(f"const {kind} right_k = k0 + threadIdx.y;")
        right_at, right_column = "[threadIdx.y][threadIdx.x]", body.column
    else:
        loads += [f"const {kind} right_k = k0 + threadIdx.x;",
                  f"const {kind} right_column = blockIdx.x * {tile} + threadIdx.y;"]  # fmt: skip
        right_at, right_column = "[threadIdx.x][threadIdx.y]", "right_column"
        right_names[body.column] = "right_column"
    loads += [
        f"left_tile{left_at} = {left_row} < {body.rows} && left_k < {body.depth}",
        f"    ? {renamed(body.left, left_names)} : 0.0f;",
        f"right_tile{right_at} = right_k < {body.depth} && {right_column} < {body.columns}",
        f"    ? {renamed(body.right, right_names)} : 0.0f;",
    ]
    k = body.index
    lines = [
        f"__shared__ float left_tile[{tile}][{tile}];",
        f"__shared__ float right_tile[{tile}][{tile}];",
        f"const {kind} {body.column} = blockIdx.x * {tile} + threadIdx.x;",
        f"const {kind} {body.row} = blockIdx.y * {tile} + threadIdx.y;",
        f"float {body.accumulator} = 0.0f;",
        f"for (int k0 = 0; k0 < {body.depth}; k0 += {tile}) {{",
        *indented(loads),
        "    __syncthreads();",
        f"    for (int {k} = 0; {k} < {tile}; ++{k}) {{",
        f"        {body.accumulator} += left_tile[threadIdx.y][{k}] * "
        f"right_tile[{k}][threadIdx.x];",
        "    }",
        "    __syncthreads();",
        "}",
        f"if ({body.row} < {body.rows} && {body.column} < {body.columns}) {{",
        *indented([*body.before, *body.epilogue]),
        "}",
    ]
    replace_kernel(found, "// One block computes one square tile of the product.", lines,
                   [(tile, size)])  # fmt: skip
    set_plane(found, tile, tile, [tile, tile])
    return source.result()


def tile_constant(found: ProductKernel, wanted: str) -> str:
    """Return the name of a constant for a tile: the kernel's own where it has one."""
    source = found.source
    for name in (wanted, *(f"{wanted}_{count}" for count in range(2, 9))):
        users = [kernel for kernel in source.kernels() if uses(text_of(kernel.node), name)]
        own = [kernel.name for kernel in users] == [found.kernel.name]
        if own and _declared(source, name) is not None:
            return name
    return fresh_constant(source, wanted)


def replace_kernel(
    found: ProductKernel, comment: str, lines: list[str], constants: list[tuple[str, int]]
) -> None:
    """Replace the kernel and the comment above it; declare the constants or set their values."""
    source, node = found.source, found.kernel.node
    start = node.start_byte
    before = node.prev_named_sibling
    if before is not None and re.match(r"// One (thread|block) computes", text_of(before)):
        start = before.start_byte
    fresh = ""
    for name, value in constants:
        declared = _declared(source, name)
        if declared is not None:
            source.replace(declared, f"constexpr int {name} = {value};")
        else:
            fresh += f"constexpr int {name} = {value};\n"
    fresh += "\n" if fresh else ""
    text = "\n".join([comment, f"{found.kernel.head} {{", *indented(lines), "}"])
    source.cut(start, node.end_byte, fresh + text)


def _declared(source: Source, name: str) -> Node | None:
    for node in source.root.named_children:
        if any(item.name == name for item in declarations(node)):
            return node
    return None

"""Writes a matrix product anew: its kernel, the constants of its tiles, its launch."""

from __future__ import annotations

import re

from tree_sitter import Node

from ..source.launches import (
    BLOCK,
    GRID,
    ceiling,
    components,
    fresh_constant,
    host_text,
    set_components,
)
from ..source.syntax import Source, declarations, indented, text_of, uses
from .product_kernel import ProductKernel


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


def set_plane(found: ProductKernel, rows: str, columns: str, block: list[str]) -> None:
    """Set the grid to cover the result in tiles of rows x columns, and the block."""
    body = found.body
    across = ceiling(host_text(found.kernel, found.launch, body.columns), columns)
    down = ceiling(host_text(found.kernel, found.launch, body.rows), rows)
    beyond = [body.batches] if body.batches else components(found.launch, GRID)[2:]
    set_components(found.source, found.launch, GRID, [across, down, *beyond])
    set_components(found.source, found.launch, BLOCK, block)


def _declared(source: Source, name: str) -> Node | None:
    for node in source.root.named_children:
        if any(item.name == name for item in declarations(node)):
            return node
    return None

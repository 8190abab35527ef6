"""tune_block_size: another number of threads a block, and a grid to match."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence

from tree_sitter import Node

from ...harness.records.tasks import Task
from ..rewriting.kernels.element_kernel import element_kernels
from ..rewriting.kernels.element_kernel import written as element_written
from ..rewriting.kernels.plane import read_plane
from ..rewriting.kernels.row_kernel import row_kernels
from ..rewriting.kernels.row_kernel import written as row_written
from ..rewriting.records import Inapplicable, Kernels, NotRecognised, Outcome, Parameters, Rewritten
from ..rewriting.source.constants import Constants
from ..rewriting.source.launches import (
    BLOCK,
    GRID,
    block_name,
    block_size,
    ceiling,
    components,
    counted_by_function,
    host_text,
    host_values,
    set_components,
)
from ..rewriting.source.syntax import Kernel, Launch, Source, declarations, text_of, uses
from .conditions import at_least
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `block_size` is the number of threads of a block."""
    return Technique(
        name="tune_block_size",
        moves=("+occupancy",),
        description=(
            "Change the threads per block so that enough warps are resident and the grid fills the "
            "GPU evenly."
        ),
        applies_when=(
            "Achieved occupancy is well under its limit, blocks are smaller than 128 threads, or a "
            "few large blocks leave a ragged last wave."
        ),
        avoid_when=(
            "The block size is baked into the algorithm (tile edge, one row per block) or "
            "registers already limit occupancy at the present size."
        ),
        side_effects=(
            "Shared memory and barriers per block change; a reduction tree must be written for the "
            "new size."
        ),
        notes=(
            "Start from 256. Blocks under 64 threads hit the limit of 32 (16 on some GPUs) "
            "resident blocks per SM before the limit of warps, and each block costs about a clock "
            "of the whole chip to launch. Recompute the grid from the block with a ceiling "
            "division and keep the bounds check."
        ),
        parameters={"block_size": (128, 64, 256, 512, 1024)},
        formerly={"size": "block_size"},
        sources=('CUDA C++ Best Practices Guide, "Thread and Block Heuristics"',),
        change=_apply,
        conditions=(at_least("elements", 33.0),),
    )


def _apply(source: str, task: Task, parameters: Parameters, _: Kernels) -> Outcome:
    size = parameters["block_size"]
    plain = Source(source)
    kernels = [kernel.name for kernel in plain.kernels()]
    kernels, unnamed = _done_to_each(kernels, lambda name: _name_block(plain, task, name), plain)
    named = Source(plain.result())
    names, reason = _done_to_each(kernels, lambda name: _resize(named, task, name, size), named)
    if not names:
        return Inapplicable(reason=reason or unnamed or "the source has no kernel")
    return Rewritten(source=named.result(), note=f"{', '.join(names)}: {size} threads a block")


def _done_to_each(
    names: Sequence[str], edit: Callable[[str], None], source: Source
) -> tuple[list[str], str]:
    """Edit a source for each of some kernels; return those for which it could be done, and why the
    last of the others could not."""
    done, reason = [], ""
    for name in names:
        try:
            with source.all_or_none():
                edit(name)
            done.append(name)
        except NotRecognised as why:
            reason = f"{name}: {why}"
    return done, reason


def _name_block(source: Source, task: Task, name: str) -> None:
    """Make the block size of a kernel a constant that its grid follows from."""
    for launched_anew in (_elements_launched_anew, _rows_launched_anew):
        with contextlib.suppress(NotRecognised), source.all_or_none():
            launched_anew(source, task, name)
            return
    launch = source.launch_of(next(each for each in source.kernels() if each.name == name))
    threads = counted_by_function(source, launch)
    if threads is not None:
        block = block_name(source, Constants(source, task), launch)
        set_components(source, launch, GRID, [ceiling(threads, block)])


def _elements_launched_anew(source: Source, task: Task, name: str) -> None:
    element = element_kernels(source.text, task, [name], source)[0]
    if uses(components(element.launch, GRID)[0], element.block):
        raise NotRecognised("the grid follows already")
    element_written(element, element.body)


def _rows_launched_anew(source: Source, task: Task, name: str) -> None:
    row = row_kernels(source.text, task, [name], source)[0]
    body = row.body
    if body.mapping == "block":
        row_written(row, body)
    elif uses(components(row.launch, GRID)[0], row.block):
        raise NotRecognised("the grid follows already")
    else:
        host = host_text(row.kernel, row.launch, body.rows)
        divisor = row.block if body.mapping == "thread" else f"{row.block} / {body.lanes}"
        set_components(source, row.launch, GRID, [ceiling(host, divisor)])


def _resize(source: Source, task: Task, name: str, size: int) -> None:
    kernel = next(k for k in source.kernels() if k.name == name)
    launch = source.launch_of(kernel)
    constants = Constants(source, task)
    lengths = block_size(constants, launch)
    if math.prod(lengths) == size:
        raise NotRecognised(f"a block has {size} threads already")
    if "__shared__" in text_of(kernel.node):
        raise NotRecognised("the block's size follows from its shared tiles")
    if "__launch_bounds__" in kernel.head:
        raise NotRecognised("the kernel bounds its block size")
    if len(lengths) == 1:
        _resize_line(source, kernel, launch, size)
    else:
        _resize_plane(source, kernel, launch, constants, size)


def _resize_line(source: Source, kernel: Kernel, launch: Launch, size: int) -> None:
    block = components(launch, BLOCK)[0]
    declared = _constant(source, block)
    if declared is None:
        raise NotRecognised("the grid does not follow from a constant block size")
    grid = host_values(launch, components(launch, GRID)[0])
    by_threads = "blockDim" in text_of(kernel.body) and "gridDim" not in text_of(kernel.body)
    if by_threads and not uses(grid, block) and _indexes_by_block(kernel):
        raise NotRecognised("the grid does not follow from the block size")
    source.replace(declared, str(size))


def _resize_plane(
    source: Source, kernel: Kernel, launch: Launch, constants: Constants, size: int
) -> None:
    plane = read_plane(kernel, launch, constants)
    across = 16 if size == 64 else 32
    down = size // across
    block = components(launch, BLOCK)[:2]
    declared = [_constant(source, text) for text in block]
    if all(declared) and len({*block}) == len(block) and all(
        uses(grid, text) for grid, text in zip(components(launch, GRID), block, strict=False)
    ):
        for node, length in zip(declared, (across, down), strict=True):
            assert node is not None
            source.replace(node, str(length))
        return
    grids = [
        ceiling(host_text(kernel, launch, text), str(length))
        for text, length in ((plane.columns, across), (plane.rows, down))
    ]
    set_components(source, launch, GRID, grids)
    set_components(source, launch, BLOCK, [str(across), str(down)])


def _constant(source: Source, name: str) -> Node | None:
    """Return the value of a file-level constant that is a number."""
    for node in source.root.named_children:
        for item in declarations(node):
            if item.name == name and item.value is not None:
                return item.value if item.value.type == "number_literal" else None
    return None


def _indexes_by_block(kernel: Kernel) -> bool:
    return re.search(r"blockIdx\.x\)?\s*\*|\*\s*blockIdx\.x", text_of(kernel.body)) is not None

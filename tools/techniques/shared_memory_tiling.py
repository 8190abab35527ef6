"""shared_memory_tiling: a block loads square tiles of both factors once and shares them."""

from __future__ import annotations

from ...harness.records.tasks import Task
from ..rewriting.kernels.product_kernel import ProductKernel, is_contiguous, product_kernels
from ..rewriting.kernels.product_writer import replace_kernel, set_plane, tile_constant
from ..rewriting.kernels.recognised import first_changed
from ..rewriting.records import Kernels, NotRecognised, Outcome, Parameters, Rewritten
from ..rewriting.source.syntax import indented, renamed
from .conditions import computes
from .operators import WITH_PRODUCTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `tile` is the side of a tile and of the block."""
    return Technique(
        name="shared_memory_tiling",
        moves=("+shared_share",),
        description=(
            "Stage tiles of the operands in shared memory so that each element fetched from global "
            "memory is used by a whole block."
        ),
        applies_when=(
            "Matrix products, convolutions and stencils in which threads of a block read the same "
            "global elements again and again; the load/store unit or L2 is the limit."
        ),
        avoid_when=(
            "Each element is used once (elementwise, plain reductions), or the cache already "
            "serves the reuse and shared traffic would only add to the same load/store unit."
        ),
        side_effects="Barriers; shared memory may limit occupancy; edges of tiles need guards.",
        notes=(
            "Square tiles of 32 (or 16): each thread loads one element of each tile with "
            "neighbouring threads on neighbouring addresses, barrier, inner product over the tile, "
            "barrier. Write zeros outside the matrix instead of branching around the barrier."
        ),
        parameters={"tile": (16, 32)},
        sources=('CUDA C++ Best Practices Guide, "Shared Memory in Matrix Multiplication (C=AB)"',),
        change=_apply,
        conditions=(computes(*WITH_PRODUCTS),),
    )


def _apply(source: str, task: Task, parameters: Parameters, kernels: Kernels) -> Outcome:
    tile = parameters["tile"]

    def change(found: ProductKernel) -> Rewritten:
        if found.body.square > 1:
            raise NotRecognised("each thread computes a square of results already")
        if found.body.tile == tile:
            raise NotRecognised(f"the product is tiled by {tile} already")
        text = _write(found, tile)
        return Rewritten(source=text, note=f"{found.kernel.name}: tiles of {tile} x {tile}")

    return first_changed(product_kernels(source, task, kernels), change)


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

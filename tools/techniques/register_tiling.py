"""register_tiling: a thread computes a square of results, reusing what it reads of shared tiles."""

from __future__ import annotations

from ...harness.records.tasks import Task
from ..rewriting.kernels.product_kernel import (
    ProductBody,
    ProductKernel,
    is_contiguous,
    product_kernels,
)
from ..rewriting.kernels.product_writer import replace_kernel, set_plane, tile_constant
from ..rewriting.kernels.recognised import first_changed
from ..rewriting.records import Inapplicable, Kernels, NotRecognised, Outcome, Parameters, Rewritten
from ..rewriting.source.syntax import indented
from .conditions import computes
from .operators import WITH_PRODUCTS
from .technique import Technique

_DEPTH = 16
"""Columns of the left tile: 16 floats are two sectors, and both tiles fit the static limit."""


def technique() -> Technique:
    """Return the technique; `tile` is a block's side of the result, `thread_tile` a thread's."""
    return Technique(
        name="register_tiling",
        description=(
            "Let each thread compute a small block of outputs in registers, reusing each operand "
            "it reads several times."
        ),
        applies_when=(
            "A tiled matrix product in which the load/store unit (shared-memory reads), not "
            "arithmetic, is the limit: one output per thread reads two operands per multiply-add."
        ),
        avoid_when=(
            "Registers are already near the limit of 255, or the matrices are so small that fewer "
            "blocks would not fill the GPU."
        ),
        side_effects=(
            "More registers, lower occupancy (which is fine once instruction-level parallelism "
            "hides latency); a smaller grid."
        ),
        notes=(
            "A block tile of 64x64 or 128x128 with 8x8 or 4x4 outputs per thread: read a column "
            "fragment of A and a row fragment of B into registers, multiply-add the outer product. "
            "Reads per multiply-add fall from 2 to 2/t. Read fragments 16 bytes at a time."
        ),
        parameters={"tile": (64, 128, 32), "thread_tile": (4, 8)},
        formerly={"square": "thread_tile"},
        sources=('Volkov and Demmel, "Benchmarking GPUs to Tune Dense Linear Algebra" (SC 2008)',),
        change=_apply,
        conditions=(computes(*WITH_PRODUCTS),),
    )


def _apply(source: str, task: Task, parameters: Parameters, kernels: Kernels) -> Outcome:
    tile, square = parameters["tile"], parameters["thread_tile"]
    threads = (tile // square) ** 2
    if not 32 <= threads <= 1024:
        return Inapplicable(reason=f"a block would have {threads} threads")

    def change(found: ProductKernel) -> Rewritten:
        if (found.body.tile, found.body.square) == (tile, square):
            raise NotRecognised(f"threads compute squares of {square} in tiles of {tile} already")
        text = _write(found, tile, square)
        note = f"{found.kernel.name}: {square} x {square} results a thread"
        return Rewritten(source=text, note=note)

    return first_changed(product_kernels(source, task, kernels), change)


def _write(found: ProductKernel, size: int, square_size: int) -> str:
    body = found.body
    tile, depth = tile_constant(found, "TILE"), tile_constant(found, "TILE_K")
    square, threads = tile_constant(found, "SQUARE"), tile_constant(found, "THREADS")
    kind = f"const {body.type}"
    row, column, k = body.row, body.column, body.index
    left = _load("left", row, "first_row", f"{row} < {body.rows} && {k} < {body.depth}",
                 body.left, is_contiguous(body.left, k), body, tile, depth, threads)  # fmt: skip
    right = _load("right", column, "first_column", f"{k} < {body.depth} && {column} < "
                  f"{body.columns}", body.right, is_contiguous(body.right, k), body, tile, depth,
                  threads)  # fmt: skip
    each = ["#pragma unroll", f"for (int m = 0; m < {square}; ++m) {{"]
    both = [*each, "    #pragma unroll", f"    for (int n = 0; n < {square}; ++n) {{"]
    lines = [
        f"__shared__ alignas(16) float left_tile[{depth}][{tile}];",
        f"__shared__ alignas(16) float right_tile[{depth}][{tile}];",
        f"{kind} first_row = blockIdx.y * {tile};",
        f"{kind} first_column = blockIdx.x * {tile};",
        "// Where this thread's square of results is in the block's tile.",
        f"const int square_row = threadIdx.x / ({tile} / {square}) * {square};",
        f"const int square_column = threadIdx.x % ({tile} / {square}) * {square};",
        f"float sums[{square}][{square}] = {{}};",
        f"for (int k0 = 0; k0 < {body.depth}; k0 += {depth}) {{",
        *indented([*left, *right, "__syncthreads();"]),
        "    #pragma unroll",
        f"    for (int {k} = 0; {k} < {depth}; ++{k}) {{",
        f"        float left[{square}], right[{square}];",
        *indented(each, 2),
        f"            left[m] = left_tile[{k}][square_row + m];",
        f"            right[m] = right_tile[{k}][square_column + m];",
        "        }",
        *indented(both, 2),
        "                sums[m][n] += left[m] * right[n];",
        "            }",
        "        }",
        "    }",
        "    __syncthreads();",
        "}",
        *both,
        f"        {kind} {row} = first_row + square_row + m;",
        f"        {kind} {column} = first_column + square_column + n;",
        f"        if ({row} < {body.rows} && {column} < {body.columns}) {{",
        f"            float {body.accumulator} = sums[m][n];",
        *indented([*body.before, *body.epilogue], 3),
        "        }",
        "    }",
        "}",
    ]
    constants = [(tile, size), (depth, _DEPTH), (square, square_size),
                 (threads, (size // square_size) ** 2)]  # fmt: skip
    comment = "// One block computes one square tile of the product, a thread a square of it."
    replace_kernel(found, comment, lines, constants)
    set_plane(found, tile, tile, [threads])
    return found.source.result()


def _load(
    name: str, variable: str, first: str, inside: str, element: str, k_first: bool,
    body: ProductBody, tile: str, depth: str, threads: str,
) -> list[str]:  # fmt: skip
    """Return the loop that fills one tile, neighbouring threads on neighbouring addresses."""
    at, in_k = ("part / {depth}", "part % {depth}") if k_first else (
        "part % {tile}", "part / {tile}")  # fmt: skip
    place, step = at.format(depth=depth, tile=tile), in_k.format(depth=depth, tile=tile)
    return [
        f"for (int part = threadIdx.x; part < {tile} * {depth}; part += {threads}) {{",
        f"    const {body.type} {variable} = {first} + {place};",
        f"    const {body.type} {body.index} = k0 + {step};",
        f"    {name}_tile[{step}][{place}] = {inside}",
        f"        ? {element} : 0.0f;",
        "}",
    ]

"""tile_rasterization: blocks that run together take tiles that share rows and columns."""

from __future__ import annotations

from .conditions import at_least, computes, lacking
from .operators import MOVES, WITH_PRODUCTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `group` is the number of tile rows that are walked together."""
    return Technique(
        name="tile_rasterization",
        description=(
            "Map block indices to output tiles in groups, so that blocks resident at the same time "
            "share rows of one factor and columns of the other in L2."
        ),
        applies_when=(
            "Large tiled products and transposes whose operands are larger than L2: DRAM or L2 "
            "traffic is well above the compulsory one."
        ),
        avoid_when="Both factors fit L2, or the grid is one wave.",
        side_effects="A division or two a block; nothing else.",
        notes=(
            "From the linear block index: band = index / (group * tiles_n), inside it rows run "
            "fastest; the last band may be shorter. Groups of 4 to 16 tile rows make a wave nearly "
            "square. With blockIdx.y of up to 65535 a one-dimensional grid is simplest."
        ),
        parameters={"group": (8, 4, 16)},
        sources=(
            'CUTLASS documentation, "Efficient GEMM in CUDA", section "Threadblock Rasterization"',
            'Tillet, Kung and Cox, "Triton: An Intermediate Language and Compiler for Tiled '
            'Neural Network Computations" (MAPL 2019)',
        ),
        conditions=(computes(*WITH_PRODUCTS, *MOVES), at_least("waves", 1.0)),
        unfit=lacking(r"__shared__", "no tiles are staged in shared memory"),
    )

"""stream_k: the sums of all tiles of a product in equal shares over the resident blocks."""

from __future__ import annotations

from .conditions import at_most, computes
from .operators import WITH_PRODUCTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `blocks_per_sm` is the number of blocks for each multiprocessor."""
    return Technique(
        name="stream_k",
        description=(
            "Deal the K iterations of all output tiles out to the resident blocks in equal shares, "
            "so that no wave is ragged; tiles cut by a border are put together from partial sums."
        ),
        applies_when=(
            "Products whose tiles fill one to a few waves and leave the last one mostly empty."
        ),
        avoid_when=(
            "Many waves (the tail is small), or so few tiles that split_k says the same more "
            "simply."
        ),
        side_effects=(
            "A workspace for partial tiles and flags or a second launch; the order of summation "
            "changes."
        ),
        notes=(
            "Block b takes iterations [b * total / blocks, (b + 1) * total / blocks) of tiles in "
            "order. One that begins inside a tile writes its partial tile to the workspace; the "
            "tile's first block adds them, after a flag (threadfence, then atomic) or in a second "
            "small kernel. Flags must be cleared by the same call: cudaMemsetAsync. Data-parallel "
            "tiles first and only the last waves in shares keeps the L2 warm."
        ),
        parameters={"blocks_per_sm": (1, 2)},
        sources=(
            'Osama, Merrill, Cecka, Garland and Owens, "Stream-K: Work-centric Parallel '
            'Decomposition for Dense Matrix-Matrix Multiplication on the GPU" (PPoPP 2023)',
        ),
        conditions=(computes(*WITH_PRODUCTS), at_most("waves", 6.0)),
    )

"""balance_uneven_work: no block is left alone at the end with the longest piece."""

from __future__ import annotations

from .conditions import at_least
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `blocks_per_sm` is the number of resident blocks that take pieces."""
    return Technique(
        name="balance_uneven_work",
        description=(
            "Even out work that differs from block to block: longest pieces first, long paired "
            "with short, pieces cut to equal size, or handed out by an atomic counter."
        ),
        applies_when=(
            "Blocks of very different length (triangles, ragged rows, masks), or a last wave that "
            "is nearly empty, so that few SMs work at the end."
        ),
        avoid_when="Blocks are alike and waves many.",
        side_effects="A counter to clear in each call, or a mapping that is harder to read.",
        notes=(
            "Triangles: block i takes rows i and n - 1 - i. A tail: a tile size that makes the "
            "blocks just under a multiple of SMs times resident blocks, or smaller tiles for the "
            "last wave. Counter: thread 0 atomicAdd, share by shared memory, barrier; "
            "cudaMemsetAsync clears it."
        ),
        parameters={"blocks_per_sm": (2, 1, 4)},
        sources=(
            'NVIDIA Nsight Compute documentation, "Launch Statistics" (tail effect)',
            'Cederman and Tsigas, "On Dynamic Load Balancing on Graphics Processors" (Graphics '
            "Hardware 2008)",
        ),
        conditions=(at_least("blocks", 2.0),),
    )

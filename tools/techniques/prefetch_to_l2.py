"""prefetch_to_l2: what is needed soon is asked into L2 while there is other work."""

from __future__ import annotations

from .conditions import already
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `distance` is how many tiles ahead."""
    return Technique(
        name="prefetch_to_l2",
        description=(
            "Ask for tiles some iterations ahead by prefetch.global.L2 (or loads with L2::128B or "
            "256B), without registers or shared memory for them."
        ),
        applies_when=(
            "A loop over tiles from DRAM with few resident warps, when registers and shared memory "
            "are full; rows gathered by index."
        ),
        avoid_when="DRAM is at its bandwidth already, or the data are in L2.",
        side_effects="An instruction a line; too far ahead it pushes out what is in use.",
        notes=(
            'asm volatile("prefetch.global.L2 [%0];" :: "l"(pointer)); one lane for each 128 bytes '
            "is enough. sm_90: cp.async.bulk.prefetch.L2 takes a whole row. On loads L2::256B "
            "fetches the neighbouring lines."
        ),
        parameters={"distance": (2, 4, 1)},
        sources=('PTX ISA, "prefetch" and "ld", modifier .level::prefetch_size',),
        unfit=already(r"prefetch\.global|L2::(128|256)B", "it prefetches into L2 already"),
    )

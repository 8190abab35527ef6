"""privatized_atomics: copies of the result in shared memory take the atomics first."""

from __future__ import annotations

from .conditions import no_atomics
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `copies` is the number of copies of a block."""
    return Technique(
        name="privatized_atomics",
        description=(
            "Add into a copy of the result in shared memory (one a block or a warp) and add the "
            "copies to global memory at the end."
        ),
        applies_when=(
            "Histograms, scatter additions and binned sums with few destinations, many lanes "
            "hitting the same ones."
        ),
        avoid_when="Destinations do not fit shared memory, or are hit about once each.",
        side_effects=(
            "Shared memory for the copies; floats are summed in another order in each run."
        ),
        notes=(
            "Clear the copy, barrier, atomicAdd on shared memory (integers in hardware, floats by "
            "a loop of compare-and-swap), barrier, one global atomicAdd a bin and block that is "
            "not zero. More copies (a warp each) where lanes still collide. Few fat blocks: fewer "
            "merges."
        ),
        parameters={"copies": (1, 4, 8)},
        sources=(
            'NVIDIA Technical Blog, "GPU Pro Tip: Fast Histograms Using Shared Atomics on '
            'Maxwell" (2015)',
        ),
        unfit=no_atomics,
    )

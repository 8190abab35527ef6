"""mbarrier_pipeline: stages hand over by barriers in shared memory that count arrivals."""

from __future__ import annotations

from .conditions import already, at_least, first_of, nothing_staged
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `stages` is the number of tiles in shared memory."""
    return Technique(
        name="mbarrier_pipeline",
        description=(
            "Replace block-wide barriers of a staged loop by mbarriers (cuda::barrier), one full "
            "and one empty a stage, so that warps wait only for the tile they need."
        ),
        applies_when=(
            "A loop over tiles, copied ahead, whose warps still wait for each other at a "
            "__syncthreads a tile."
        ),
        avoid_when="One or two warps a block, or few tiles.",
        side_effects="Parities to keep; a few words of shared memory.",
        notes=(
            "mbarrier.init with the number of arriving threads; cp.async.mbarrier.arrive.noinc "
            "makes copies arrive by themselves; mbarrier.try_wait.parity in a loop (test_wait on "
            "sm_80); parity turns each time a stage is used again. cuda::pipeline with block scope "
            "is the same in C++."
        ),
        parameters={"stages": (3, 4, 2)},
        sources=(
            'PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier"',
            'CUDA C++ Programming Guide, "Asynchronous Barrier"',
        ),
        conditions=(at_least("capability", 8.0),),
        unfit=first_of(
            already(r"mbarrier|cuda::barrier|cuda::pipeline", "it waits at mbarriers already"),
            nothing_staged,
        ),
    )

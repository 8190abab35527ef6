"""warp_specialization: some warps load, the others compute."""

from __future__ import annotations

from .conditions import at_least, computes, nothing_staged
from .operators import WITH_PRODUCTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique.

    `producers` is the number of warps that load, `stages` the number of tiles in flight.
    """
    return Technique(
        name="warp_specialization",
        description=(
            "Give the warps of a block different work: producers keep tiles arriving in shared "
            "memory, consumers compute on them, and they meet at barriers by stage."
        ),
        applies_when=(
            "Tiled kernels in which loading and computing take turns though tiles are copied "
            "ahead; long loops over tiles."
        ),
        avoid_when=(
            "Few tiles a block; occupancy high enough for other blocks to fill the gaps; little "
            "shared memory."
        ),
        side_effects=(
            "Warps that compute nothing; barriers that are easily got wrong: deadlock or race."
        ),
        notes=(
            "Two barriers a stage, full and empty: mbarriers (or bar.sync and bar.arrive with ids "
            "1 to 15 and thread counts). Branch once by warp, never inside a __syncthreads. sm_80: "
            "one or two producer warps with cp.async and cp.async.mbarrier.arrive.noinc; sm_90: "
            "one thread orders bulk copies, setmaxnreg moves registers from producers to consumers "
            "(whole groups of four warps)."
        ),
        parameters={"producers": (1, 4), "stages": (3, 4)},
        sources=(
            'Bauer, Cook and Khailany, "CudaDMA: Optimizing GPU Memory Bandwidth via Warp '
            'Specialization" (SC 2011)',
            'CUTLASS documentation, "Efficient GEMM in CUDA", section "Warp Specialization"',
        ),
        conditions=(computes(*WITH_PRODUCTS), at_least("capability", 8.0)),
        unfit=nothing_staged,
    )

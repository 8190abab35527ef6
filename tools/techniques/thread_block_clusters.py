"""thread_block_clusters: neighbouring blocks share what they staged (sm_90)."""

from __future__ import annotations

from .conditions import ON_A_GPU, already, at_least, computes
from .operators import ROWS, SCATTERS, WITH_PRODUCTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `cluster` is the number of blocks of a cluster."""
    return Technique(
        name="thread_block_clusters",
        description=(
            "Launch blocks in clusters that read each other's shared memory, so that a tile two "
            "blocks need is fetched from L2 once, or blocks combine results without global memory."
        ),
        applies_when=(
            "sm_90 or newer; neighbouring blocks load the same tile, or several blocks reduce one "
            "row that is too long for one."
        ),
        avoid_when=(
            "Older GPUs; blocks that share nothing; shared memory so large that a cluster finds no "
            "room on one GPC."
        ),
        side_effects=(
            "Blocks of a cluster start together; two cluster barriers, one before a block may "
            "leave."
        ),
        notes=(
            "__cluster_dims__(n, 1, 1) on the kernel, or cudaLaunchKernelExC with the attribute; "
            "cooperative_groups::this_cluster(), map_shared_rank(pointer, rank), cluster.sync() "
            "after writing and before leaving. At most 8 blocks without an opt-in; 2 or 4 are "
            "usual."
        ),
        parameters={"cluster": (2, 4, 8)},
        sources=(
            'CUDA C++ Programming Guide, "Thread Block Clusters" and "Distributed Shared Memory"',
            'NVIDIA Hopper Tuning Guide, "Thread Block Clusters"',
        ),
        conditions=(
            at_least("capability", 9.0),
            ON_A_GPU,
            computes(*WITH_PRODUCTS, *ROWS, *SCATTERS),
        ),
        unfit=already(r"cluster_dims|this_cluster", "its blocks come in clusters already"),
    )

"""fuse_elementwise_kernels: kernels that follow one another element by element become one."""

from __future__ import annotations

from .conditions import SEVERAL_LAUNCHES
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="fuse_elementwise_kernels",
        moves=("-more_launches",),
        description=(
            "Join consecutive elementwise kernels into one, so that intermediate tensors stay in "
            "registers."
        ),
        applies_when=(
            "Several launches, each reading what the one before wrote, element by element; DRAM or "
            "launch overhead is the limit."
        ),
        avoid_when=(
            "A kernel between them needs a whole row or tensor first (reduction, product), unless "
            "it is fused as an epilogue."
        ),
        side_effects="Fewer launches; one larger kernel with more registers.",
        notes=(
            "Apply the operations to the loaded value in order and store once. Traffic falls from "
            "two transfers per operation to two in all, launches to one."
        ),
        sources=(
            'Filipovic et al., "Optimizing CUDA code by kernel fusion: application on '
            'BLAS" (The Journal of Supercomputing, 2015)',
        ),
        conditions=(SEVERAL_LAUNCHES,),
    )

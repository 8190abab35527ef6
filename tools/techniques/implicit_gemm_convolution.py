"""implicit_gemm_convolution: a convolution as a tiled product, unfolded only in tiles."""

from __future__ import annotations

from .conditions import computes, few_channels
from .operators import CONVOLUTIONS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `tile` is a block's side of the result, `thread_tile` a thread's."""
    return Technique(
        name="implicit_gemm_convolution",
        description=(
            "Treat a convolution as a product of (batch x output pixels) by (channels x filter) "
            "with filters, computing the addresses of the unfolded input while tiles are staged."
        ),
        applies_when=(
            "Convolutions with many channels in and out (from about 16): reuse is that of a matrix "
            "product."
        ),
        avoid_when=(
            "Depthwise or few-channel convolutions (K is short: stage a halo instead), or "
            "one-dimensional ones with small filters."
        ),
        side_effects=(
            "Index arithmetic a loaded element; edges need predicates; a tile in shared memory."
        ),
        notes=(
            "M = N * P * Q, N = output channels, K = C * R * S. Compute the pixel of a row once, "
            "before the loop over K; let K run over (r, s) outside and channels inside, so that "
            "offsets change by additions. Zeros for the padding are written into the tile. Then "
            "everything of products holds: register tiles, split precision on tensor cores, fused "
            "bias and activation. NHWC makes channels contiguous; transpose weights once into the "
            "workspace where that helps."
        ),
        parameters={"tile": (64, 128), "thread_tile": (4, 8)},
        sources=(
            'Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning" (arXiv:1410.0759, '
            "2014)",
            'CUTLASS documentation, "Implicit GEMM Convolution"',
        ),
        conditions=(computes(*CONVOLUTIONS),),
        unfit=few_channels,
    )

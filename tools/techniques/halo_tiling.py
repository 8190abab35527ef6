"""halo_tiling: a tile and its margin in shared memory serve all windows over it."""

from __future__ import annotations

from .conditions import already, computes
from .operators import CONVOLUTIONS, POOLS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `tile` is the side of a block's tile of results."""
    return Technique(
        name="halo_tiling",
        description=(
            "Stage a tile of the input with its halo in shared memory (or registers) once, and "
            "compute all windows over it from there."
        ),
        applies_when=(
            "Convolutions with few channels, depthwise ones, stencils and pooling whose "
            "neighbouring threads read the same input again and again through L1."
        ),
        avoid_when=(
            "Windows do not overlap, or many channels make a product the better form "
            "(implicit_gemm_convolution)."
        ),
        side_effects="A barrier a tile; the halo is read by two blocks.",
        notes=(
            "Load rows of tile + filter - 1, neighbouring threads on neighbouring addresses, zeros "
            "outside. Filters through constant memory, or registers where one channel is done at a "
            "time. Combine with several outputs a thread: each value read from shared memory then "
            "serves several multiply-adds."
        ),
        parameters={"tile": (32, 16, 64)},
        sources=(
            'Podlozhnyuk, "Image Convolution with CUDA" (NVIDIA, 2007)',
            'Micikevicius, "3D Finite Difference Computation on GPUs using CUDA" (GPGPU-2, 2009)',
        ),
        conditions=(computes(*CONVOLUTIONS, *POOLS, "unfold"),),
        unfit=already(r"halo", "a halo is staged already"),
    )

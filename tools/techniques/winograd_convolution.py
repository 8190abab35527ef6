"""winograd_convolution: 3 x 3 convolutions with fewer multiplications."""

from __future__ import annotations

from .conditions import OTHER_TASK, AtHand, computes, few_channels, first_of
from .operators import convolutions
from .technique import Technique


def technique() -> Technique:
    """Return the technique.

    `outputs` is the side of the square of results that a transform makes.
    """
    return Technique(
        name="winograd_convolution",
        description=(
            "Compute 3 x 3 convolutions of stride 1 by Winograd's minimal filtering: transform "
            "input tiles and filters, multiply element by element over channels, transform back."
        ),
        applies_when=(
            "3 x 3 filters, stride 1, many channels, bound by arithmetic: F(2x2) needs 2.25 times "
            "fewer multiplications, F(4x4) 4 times."
        ),
        avoid_when=(
            "Other filters or strides, few channels, or half-precision transforms: F(4x4) loses "
            "about two digits, and a tolerance of 1e-4 may refuse it."
        ),
        side_effects="Different rounding; workspace for transformed filters; more registers.",
        notes=(
            "F(2x2, 3x3): input tile 4 x 4 by B^T d B (additions only), filters G g G^T once into "
            "the workspace, 16 batched products over channels, output A^T m A. Fuse the input "
            "transform with staging into shared memory. The transformed products can run on tensor "
            "cores with split factors."
        ),
        parameters={"outputs": (2, 4)},
        sources=(
            'Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016)',
        ),
        conditions=(computes("conv2d", "convolution"),),
        unfit=first_of(few_channels, _no_small_filter),
    )


def _no_small_filter(at_hand: AtHand) -> str | None:
    known = convolutions(at_hand.task)
    suits = any(
        not each.transposed
        and [(axis.taps, axis.stride, axis.dilation) for axis in each.axes] == [(3, 1, 1)] * 2
        for each in known
    )
    return None if suits or not known else OTHER_TASK

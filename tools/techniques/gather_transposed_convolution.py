"""gather_transposed_convolution: each result of a transposed one gathers its inputs."""

from __future__ import annotations

from .conditions import OTHER_TASK, AtHand, computes
from .operators import TRANSPOSED_CONVOLUTIONS, convolutions
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `pixels` is the number of results of a thread."""
    return Technique(
        name="gather_transposed_convolution",
        description=(
            "Compute a transposed convolution output by output: each gathers the inputs that reach "
            "it, one phase of the stride at a time, without testing every tap."
        ),
        applies_when=(
            "Transposed convolutions that scatter with atomics, or gather with a modulo test for "
            "each filter tap of which most fail."
        ),
        avoid_when="Stride 1: that is an ordinary convolution with the filter turned round.",
        side_effects="A kernel instance or loop for each phase of the stride.",
        notes=(
            "Output y = s * i - p + r: for the phase (y + p) % s only taps r = phase, phase + s, "
            "... count, so loop over those alone with i falling by one. Outputs of one phase form "
            "a dense convolution with a smaller filter: tile it as such, or as a product over "
            "(channels x taps). Threads along the width of one phase store with stride s: let a "
            "thread make all phases of a pixel."
        ),
        parameters={"pixels": (2, 4)},
        sources=(
            'Dumoulin and Visin, "A guide to convolution arithmetic for deep learning" '
            "(arXiv:1603.07285, 2016)",
        ),
        conditions=(computes(*TRANSPOSED_CONVOLUTIONS, "convolution"),),
        unfit=_dense,
    )


def _dense(at_hand: AtHand) -> str | None:
    known = convolutions(at_hand.task)
    strided = any(each.transposed and any(axis.stride > 1 for axis in each.axes) for each in known)
    return None if strided or not known else OTHER_TASK

"""partial_top_k: the k best without sorting all."""

from __future__ import annotations

from .conditions import computes
from .operators import SORTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `items` is the number of elements of a thread."""
    return Technique(
        name="partial_top_k",
        description=(
            "Find the k best of a row by partial selection: each thread or warp keeps its own few "
            "best, then they are merged; or by radix passes that narrow down a threshold."
        ),
        applies_when="topk, kthvalue, argmax and small sorts along rows.",
        avoid_when=(
            "k is a large part of the row: sort it (bitonic in shared memory or "
            "cub::BlockRadixSort)."
        ),
        side_effects=(
            "Registers or shared memory for candidates; ties must come out as PyTorch has them."
        ),
        notes=(
            "k = 1: a reduction over (value, index). k up to about 32: a warp keeps a sorted queue "
            "over its lanes, each lane a short private one, merged by bitonic steps when full. "
            "Larger: histogram of 8 bits at a time finds the threshold, a second pass collects. "
            "Map floats to unsigned keys whose order is the same (flip the sign bit, or all bits "
            "of negatives)."
        ),
        parameters={"items": (8, 4, 16)},
        sources=(
            'Johnson, Douze and Jegou, "Billion-scale similarity search with GPUs" '
            "(arXiv:1702.08734, 2017)",
            'Merrill and Grimshaw, "High Performance and Scalable Radix Sorting" (Parallel '
            "Processing Letters, 2011)",
        ),
        conditions=(computes(*SORTS),),
    )

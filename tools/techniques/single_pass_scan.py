"""single_pass_scan: prefix sums in one pass: blocks look back at those before them."""

from __future__ import annotations

from .conditions import computes
from .operators import SCANS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `items` is the number of elements of a thread."""
    return Technique(
        name="single_pass_scan",
        description=(
            "Scan in one pass: each block scans its tile, publishes its sum, and learns what came "
            "before by looking back at the blocks before it."
        ),
        applies_when=(
            "Cumulative sums, products or maxima over rows longer than a block takes, or over the "
            "whole tensor: three passes over memory become one."
        ),
        avoid_when="Rows fit a block or a warp: scan there, without any look-back.",
        side_effects=(
            "Flags in the workspace, cleared by each call; blocks wait for earlier ones, so tiles "
            "are handed out by an atomic counter."
        ),
        notes=(
            "Tile index by atomicAdd, so that those before are running. Status word and value in "
            "one 64-bit store (invalid, partial, inclusive): publish partial, look back adding "
            "partials until an inclusive one, publish inclusive. cudaMemsetAsync clears flags and "
            "counter. A warp looks at 32 predecessors at once. For many rows: a block a row with a "
            "running carry is simpler and nearly as fast."
        ),
        parameters={"items": (8, 4, 16)},
        sources=(
            'Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" '
            "(NVIDIA, 2016)",
        ),
        conditions=(computes(*SCANS),),
    )

"""occupancy_launch_bounds: fewer registers, so that more blocks are resident."""

from __future__ import annotations

from .conditions import at_least
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `min_blocks` is the second argument of __launch_bounds__."""
    return Technique(
        name="occupancy_launch_bounds",
        moves=("+occupancy",),
        description=(
            "State __launch_bounds__(threads, blocks) so that the compiler keeps registers low "
            "enough for more resident blocks."
        ),
        applies_when="Registers limit occupancy and latency is the bottleneck.",
        avoid_when=(
            "Forcing fewer registers causes spills; instruction-level parallelism already hides "
            "latency."
        ),
        side_effects="May spill to local memory.",
        notes="__launch_bounds__(BLOCK, 2..4); compare spills reported by ptxas before and after.",
        parameters={"min_blocks": (2, 3, 4)},
        sources=('CUDA C++ Programming Guide, "Launch Bounds"',),
        # With no more than 32 registers a thread, registers hold no block back.
        conditions=(at_least("registers", 33.0),),
    )

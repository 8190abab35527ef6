"""coalesced_gather: a warp takes a gathered row together, its index read once."""

from __future__ import annotations

from .conditions import computes
from .operators import LOOKUPS, SCATTERS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `rows` is the number of rows in flight for a warp."""
    return Technique(
        name="coalesced_gather",
        description=(
            "Let a warp (or a part of one) move each gathered or scattered row with wide accesses, "
            "its index loaded once, several rows in flight."
        ),
        applies_when=(
            "embedding, index_select, gather or scatter of rows by one thread an element or a row: "
            "indices are read again for each element, loads wait for indices."
        ),
        avoid_when="Single elements are gathered: coalescing depends on the indices alone then.",
        side_effects="None beside a different mapping.",
        notes=(
            "Lanes load 32 indices at once and hand them round by __shfl_sync; the warp loads row "
            "after row with 16 bytes a lane, two to four rows before the first store. For scatter "
            "additions sort or bin destinations in shared memory first, or let each destination "
            "gather. Read tables with __ldg, write with __stcs."
        ),
        parameters={"rows": (4, 2)},
        sources=('CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"',),
        conditions=(computes(*LOOKUPS, *SCATTERS),),
    )

"""swizzle_shared_memory: columns of a shared tile permuted by row, so that banks do not meet."""

from __future__ import annotations

from .conditions import no_conflicts
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="swizzle_shared_memory",
        moves=("-bank_conflicts",),
        description=(
            "Permute the columns of a shared-memory tile by exclusive-or with the row, so that "
            "rows and columns are free of conflicts."
        ),
        applies_when="Bank conflicts where padding would break 16-byte alignment or does not fit.",
        avoid_when="No conflicts are reported.",
        side_effects="Index arithmetic on every access.",
        notes="column ^ (row & 31) for 4-byte words; in groups of 16 bytes for vector accesses.",
        sources=('PTX ISA, "Swizzling Modes"',),
        unfit=no_conflicts,
    )

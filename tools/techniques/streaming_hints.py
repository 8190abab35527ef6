"""streaming_hints: data used once pass the caches by."""

from __future__ import annotations

from .conditions import already
from .technique import Technique


def technique() -> Technique:
    """Return the technique."""
    return Technique(
        name="streaming_hints",
        description=(
            "Mark loads and stores of data used once as streaming (__ldcs, __stcs, "
            "ld.global.L1::no_allocate, evict_first), so that they do not push out what is used "
            "again."
        ),
        applies_when=(
            "A kernel mixes data read once with data used again from L1 or L2 (weights, a table, a "
            "row's statistics), or writes a large output that nobody reads soon."
        ),
        avoid_when=(
            "All data are used once (nothing is there to protect), or the next launch reads what "
            "was written and it fits L2."
        ),
        side_effects="None on results.",
        notes=(
            "__stcs(&out[i], value) and __ldcs(&in[i]) take scalars and vectors (float4). Loads "
            "with L1::no_allocate keep L1 for the reused operand. L2 hints that persist "
            "(evict_last) are refused by the harness."
        ),
        sources=(
            'CUDA C++ Programming Guide, "Load Functions Using Cache Hints" and "Store '
            'Functions Using Cache Hints"',
            'PTX ISA, "Cache Operators" and "Cache Eviction Priority Hints"',
        ),
        unfit=already(
            r"__ldcs|__stcs|\.cs\.|no_allocate|evict_first", "accesses are marked already"
        ),
    )

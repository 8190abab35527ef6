"""independent_accumulators: one long chain of additions becomes several short ones."""

from __future__ import annotations

from .conditions import computes
from .operators import POOLS, ROWS, SCANS, WITH_PRODUCTS
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `chains` is the number of accumulators of a thread."""
    return Technique(
        name="independent_accumulators",
        description=(
            "Accumulate into several variables in turn and add them up at the end, so that an "
            "addition need not wait for the one before."
        ),
        applies_when=(
            "A loop that adds to (or takes the maximum with) one variable a thread with few warps "
            "resident: each iteration waits 4 cycles for arithmetic and a whole load for memory."
        ),
        avoid_when=(
            "Many warps hide the latency, or the compiler may reorder already (integers, maxima)."
        ),
        side_effects="A few registers; a different, usually better, order of summation.",
        notes=(
            "float sum[4]; unrolled by 4 with sum[j] += value[j], all loads first. nvcc does not "
            "reorder floating-point additions without fast-math, so unrolling alone leaves one "
            "chain."
        ),
        parameters={"chains": (4, 2, 8)},
        sources=(
            'Volkov, "Better Performance at Lower Occupancy" (GTC 2010)',
            'CUDA C++ Best Practices Guide, "Hiding Register Dependencies"',
        ),
        conditions=(computes(*ROWS, *SCANS, *WITH_PRODUCTS, *POOLS),),
    )

"""software_prefetch: the next iteration's loads are issued before this one's values are used."""

from __future__ import annotations

from .conditions import NO_LOOP
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `distance` is how many iterations ahead a load is issued."""
    return Technique(
        name="software_prefetch",
        description="Issue the next iteration's loads before using this iteration's values.",
        applies_when=(
            "A loop of dependent load and use with low occupancy; stalls on memory while bandwidth "
            "is idle."
        ),
        avoid_when="Enough warps hide the latency, or registers are short.",
        side_effects="Registers for the values in flight.",
        notes="next = p[i + stride] before the work on current; the last iteration needs a guard.",
        parameters={"distance": (1, 2, 4)},
        sources=(
            'NVIDIA Technical Blog, "Boosting Application Performance with GPU Memory '
            'Prefetching" (2022)',
        ),
        unfit=NO_LOOP,
    )

"""cp_async_pipeline: tiles are copied ahead into shared memory, past the registers."""

from __future__ import annotations

from .conditions import at_least, copied_ahead
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `stages` is the number of tiles in shared memory."""
    return Technique(
        name="cp_async_pipeline",
        description="Copy tiles from global to shared memory with cp.async, several stages ahead.",
        applies_when="Tiled kernels on sm_80 or newer whose loads pass through registers and wait.",
        avoid_when="Older GPUs; data that must be converted on the way.",
        side_effects="Shared memory for each stage; code is harder to follow.",
        notes=(
            "__pipeline_memcpy_async of 16 bytes, commit per stage, wait for all but the newest; 3 "
            "or 4 stages hide DRAM latency."
        ),
        parameters={"stages": (3, 2, 4)},
        sources=('CUDA C++ Programming Guide, "Asynchronous Data Copies"',),
        conditions=(at_least("capability", 8.0),),
        unfit=copied_ahead,
    )

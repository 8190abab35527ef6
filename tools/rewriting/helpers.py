"""Device functions that rewritten kernels share, inserted once before the first kernel."""

from __future__ import annotations

from .packs import PACK_HELPERS
from .syntax import Source, uses
from .threads import WARP

_STEP = {
    "sum": "value += __shfl_xor_sync(0xffffffffu, value, offset);",
    "max": "value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));",
    "min": "value = fminf(value, __shfl_xor_sync(0xffffffffu, value, offset));",
}
NEUTRAL = {"sum": "0.0f", "max": "-INFINITY", "min": "INFINITY"}
_WORD = {"sum": "Sum", "max": "Maximum", "min": "Minimum"}


def warp_reduction(kind: str) -> str:
    """Return the function `warp_<kind>`: the reduction over a warp, known to every lane."""
    return f"""\
// {_WORD[kind]} over the 32 lanes of a warp; every lane gets it.
__device__ __forceinline__ float warp_{kind}(float value) {{
    for (int offset = 16; offset > 0; offset /= 2) {{
        {_STEP[kind]}
    }}
    return value;
}}
"""


def part_reduction(kind: str, lanes: int) -> str:
    """Return the function `lanes<n>_<kind>`: the reduction over n neighbouring lanes of a warp."""
    mask = f"0x{(1 << lanes) - 1:x}u << (threadIdx.x % 32 / {lanes} * {lanes})"
    step = _STEP[kind].replace("0xffffffffu", "sharing")
    return f"""\
// {_WORD[kind]} over {lanes} neighbouring lanes, which share a row; each of them gets it.
__device__ __forceinline__ float lanes{lanes}_{kind}(float value) {{
    const unsigned sharing = {mask};
    for (int offset = {lanes // 2}; offset > 0; offset /= 2) {{
        {step}
    }}
    return value;
}}
"""


def workers(mapping: str, lanes: int) -> str:
    """Return what the functions that reduce over a row's threads begin with."""
    return mapping if mapping != "warp" or lanes == WARP else f"lanes{lanes}"


def block_reduction(kind: str) -> str:
    """Return the function `block_<kind>`: the reduction over a block, known to every thread."""
    return f"""\
// {_WORD[kind]} over the threads of a block, whole warps; every thread gets it.
__device__ __forceinline__ float block_{kind}(float value) {{
    __shared__ float partial[32];
    const int lane = threadIdx.x % 32;
    value = warp_{kind}(value);
    __syncthreads();  // the previous call may still be reading
    if (lane == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_{kind}(lane < blockDim.x / 32 ? partial[lane] : {NEUTRAL[kind]});
}}
"""


def add_helpers(
    source: Source, kinds: set[str], mapping: str, packs: bool, lanes: int = WARP
) -> None:
    """Insert the helpers that are not in the source yet, before its first kernel."""
    parts = []
    if packs and not uses(source.text, "load_pack"):
        parts.append(PACK_HELPERS)
    for kind in sorted(kinds):
        name = f"{workers(mapping, lanes)}_{kind}"
        if name.startswith("lanes") and source.function(name) is None:
            parts.append(part_reduction(kind, lanes))
        elif name.startswith(("warp", "block")) and source.function(f"warp_{kind}") is None:
            parts.append(warp_reduction(kind))
        if mapping == "block" and source.function(f"block_{kind}") is None:
            parts.append(block_reduction(kind))
    if parts:
        source.cut(anchor(source), anchor(source), "\n".join(parts) + "\n")


def anchor(source: Source) -> int:
    """Return the byte position before the first kernel and the comments above it."""
    kernels = source.kernels()
    if not kernels:
        return len(source.data)
    first = kernels[0].node
    before = first.prev_named_sibling
    while (
        before is not None
        and before.type == "comment"
        and (first.start_point[0] - before.end_point[0] <= 1)
    ):
        first, before = before, before.prev_named_sibling
    return first.start_byte

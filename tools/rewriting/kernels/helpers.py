"""Device functions that rewritten kernels share, inserted once before the first kernel."""

from __future__ import annotations

import re

from ..source.syntax import Source, uses
from ..source.threads import WARP
from .packs import PACK_HELPERS

_STEP = {
    "sum": "value += __shfl_xor_sync(0xffffffffu, value, offset);",
    "max": "value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));",
    "min": "value = fminf(value, __shfl_xor_sync(0xffffffffu, value, offset));",
}
NEUTRAL = {"sum": "0.0f", "max": "-INFINITY", "min": "INFINITY"}
_OF_DOUBLES = {"float": "double", "fmaxf": "fmax", "fminf": "fmin"}
_NEUTRAL_OF_WHOLE = {
    "int": ("-2147483647 - 1", "2147483647"),
    "long long": ("-9223372036854775807LL - 1", "9223372036854775807LL"),
}
"""Types that kernels reduce whole numbers into: below all and above all of them."""
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
    parts: list[str] = []
    if packs and not uses(source.text, "load_pack"):
        parts.append(PACK_HELPERS)
    types = [ctype for ctype in ("float", "double") if uses(source.text, ctype)]
    types += [ctype for ctype in _NEUTRAL_OF_WHOLE if re.search(
        rf"^ +{ctype} \w+ = ", source.text, re.MULTILINE)]  # fmt: skip
    for kind in sorted(kinds):
        name = f"{workers(mapping, lanes)}_{kind}"
        wanted = []
        if name.startswith("lanes"):
            wanted.append((name, part_reduction(kind, lanes)))
        elif name.startswith(("warp", "block")):
            wanted.append((f"warp_{kind}", warp_reduction(kind)))
        if mapping == "block":
            wanted.append((f"block_{kind}", block_reduction(kind)))
        for function, text in wanted:
            parts += [
                _of_type(text, ctype) for ctype in types
                if f" {ctype} {function}(" not in source.text
            ]  # fmt: skip
    # One by one: another kernel of the source may ask for some of them too.
    for part in parts:
        source.cut(anchor(source), anchor(source), part + "\n")


def _of_type(text: str, ctype: str) -> str:
    """Return a helper for numbers of a type: what adds them up must not narrow them."""
    names = _OF_DOUBLES
    if ctype in _NEUTRAL_OF_WHOLE:
        least, most = _NEUTRAL_OF_WHOLE[ctype]
        names = {"float": ctype, "fmaxf": "max", "fminf": "min", "0.0f": "0",
                 "-INFINITY": least, "INFINITY": most}  # fmt: skip
    for name, other in names.items() if ctype != "float" else ():
        text = text.replace(name, other)
    return text


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

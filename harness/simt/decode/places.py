"""Says in words where an address lies: at which byte of which buffer, or how far beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

FAR = 1 << 36
"""Distance in bytes from every buffer beyond which none is named."""
_IN_FUNCTION = re.compile(r"^_ZZ.*?E(\d+)([A-Za-z_]\w*?)(?:_\d+)?$")


class Buffer(NamedTuple):
    """[start, start + size) of some memory space, as the source names it."""

    name: str
    start: int
    size: int


def place(address: int, buffers: Iterable[Buffer], of: str = "") -> str:
    """Return an address relative to the buffer it is in, or the nearest one.

    `of` follows the size, for example `of shared memory`.
    """
    best = None
    for buffer in buffers:
        end = buffer.start + buffer.size
        told = f"{buffer.name} ({buffer.size} bytes{of and ' ' + of})"
        if buffer.start <= address < end:
            return f"byte {address - buffer.start} of {told}"
        before = address < buffer.start
        distance = buffer.start - address if before else address - end
        if best is None or distance < best[0]:
            side = "before the start" if before else "past the end"
            best = (distance, f"{how_far(distance)} {side} of {told}")
    if best is None or best[0] > FAR:
        return f"address 0x{address:x}, outside {of.removeprefix('of ') or 'device memory'}"
    return best[1]


def how_far(distance: int) -> str:
    """Return a distance in bytes; the first byte behind something is `just` behind it."""
    return f"{distance} bytes" if distance else "just"


def short_name(symbol: str) -> str:
    """Return the name that the source gives a variable: `tile` for `_ZZ4rowsPKfE4tile`."""
    found = _IN_FUNCTION.match(symbol.split("|")[-1])
    return found[2][: int(found[1])] if found else symbol.split("|")[-1]

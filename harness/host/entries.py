"""The kernels of a PTX file as a launch has to know them: parameters and launch bounds."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\(([^){;]*)\))?([^{;]*)\{")
_PARAMETER = re.compile(r"\.param\b([^,]*)")
_TYPE = re.compile(r"\.[usbf](8|16|32|64)\b")
_COUNT = re.compile(r"\[\s*(\d+)\s*\]")
_MAX_THREADS = re.compile(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
MOST_THREADS = 1024


@dataclass(frozen=True)
class Entry:
    """One kernel."""

    parameters: tuple[int, ...]
    """Bytes of each, in order."""
    max_threads: int
    """Of one block, by `__launch_bounds__`; 1024 without."""


def read_entries(ptx: str) -> dict[str, Entry]:
    """Return the kernels of a PTX file as nvcc writes it, by mangled name."""
    return {
        name: Entry(tuple(map(_size, _PARAMETER.findall(parameters))), _threads(directives))
        for name, parameters, directives in _ENTRY.findall(ptx)
    }


def _size(declared: str) -> int:
    kind, count = _TYPE.search(declared), _COUNT.search(declared)
    bits = int(kind[1]) if kind else 0
    return bits // 8 * (int(count[1]) if count else 1)


def _threads(directives: str) -> int:
    bounds = _MAX_THREADS.search(directives)
    if bounds is None:
        return MOST_THREADS
    x, y, z = (int(number or 1) for number in bounds.groups())
    return x * y * z

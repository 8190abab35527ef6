"""Times and sizes in the digits that a reader needs."""

from __future__ import annotations


def in_microseconds(value: float) -> str:
    """Return a time in microseconds in three digits."""
    return f"{value:.0f} us" if value >= 100 else f"{value:.3g} us"


def in_bytes(value: float) -> str:
    """Return a number of bytes in the unit that fits, of powers of ten."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.0f} bytes"

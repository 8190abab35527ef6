"""How reports write figures: times, gains, money, counts, each in one way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

NONE = "–"
"""Where there is no figure."""


def microseconds(value: float | None) -> str:
    """Return a time in the unit that fits, in three or four digits."""
    if value is None:
        return NONE
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g} µs"


def gain(value: float | None) -> str:
    """Return a gain, a ratio: `1.35×`; in more digits near 1, in fewer far from it."""
    if value is None:
        return NONE
    return f"{value:.0f}×" if value >= 100 else f"{value:.1f}×" if value >= 20 else f"{value:.2f}×"


def log_gain(value: float | None) -> str:
    """Return a logarithm of a gain as the gain."""
    return gain(None if value is None else math.exp(value))


def interval(low: float, high: float) -> str:
    """Return an interval of gains; empty where it has no width: a time model gives no spread."""
    return f"{gain(low)} to {gain(high)}" if low < high else ""


def count(value: float | None) -> str:
    """Return a number of things."""
    return NONE if value is None else f"{value:,.0f}"


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 step`, `3 steps`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def figure(value: float | None) -> str:
    """Return any number in four digits, with its thousands apart."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.4g}"


def share(value: float | None) -> str:
    """Return a share as per cent."""
    return NONE if value is None else f"{value:.0%}"


def money(value: float | None) -> str:
    """Return dollars."""
    return NONE if value is None else f"${value:.4f}" if value < 1 else f"${value:,.2f}"


def seconds(value: float | None) -> str:
    """Return a duration: `41 s`, `3 min 20 s`, `2 h 5 min`."""
    if value is None:
        return NONE
    whole = round(value)
    if whole < 60:
        return f"{value:.1f} s" if value < 10 else f"{whole} s"
    hours, minutes = whole // 3600, whole % 3600 // 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes >= 10 else f"{minutes} min {whole % 60} s"


def parameters(values: Mapping[str, Any]) -> str:
    """Return a technique's parameters in words; empty where there are none."""
    return ", ".join(f"{name} = {value}" for name, value in sorted(values.items()))


def plain(name: str) -> str:
    """Return a name of the program as words: `wrong_answer` is `wrong answer`."""
    return name.replace("_", " ")

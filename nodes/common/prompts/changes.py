"""What a step did to a kernel's measurements: time, traffic, launches, the time model's terms."""

from __future__ import annotations

from collections.abc import Callable

from ....harness.records.evaluations import Evaluation
from ....harness.records.profiles import Profile
from ....tools.wording.measurements import (
    MOST_LAUNCHES,
    READ,
    WRITTEN,
    summed,
)
from ....tools.wording.units import in_bytes, in_microseconds


def change_text(before: Evaluation, after: Evaluation) -> str:
    """Return what a step did to the call's time, to its DRAM traffic and to the time model's terms:
    a figure besides the time that did not move is left out.

    Terms are those of the dominant launch, where the time model gives them.
    """
    if before.timing is None or after.timing is None:
        return ""
    time = _change("", before.timing.microseconds, after.timing.microseconds, in_microseconds)
    if before.profile is None or after.profile is None:
        return time
    parts: list[str] = []
    for name, metrics in (("DRAM read", READ), ("DRAM written", WRITTEN)):
        left, right = summed(before.profile, metrics), summed(after.profile, metrics)
        if left is not None and right is not None:
            parts.append(_change(name, left, right, in_bytes))
    parts += _launches_changed(before.profile, after.profile)
    old, new = before.profile.dominant.terms, after.profile.dominant.terms
    if old and new:
        largest = {
            name for terms in (old, new) for name in sorted(terms, key=terms.__getitem__)[-2:]
        }
        parts += (
            _change(f"{name.replace('_', ' ')} alone", old[name], new[name], in_microseconds)
            for name in sorted(largest, key=lambda name: -old.get(name, 0.0))
            if name in old and name in new
        )
    return ", ".join((time, *(each for each in parts if _moved(each))))


def _launches_changed(before: Profile, after: Profile) -> list[str]:
    """Return which kernels take another time, of several; the largest changes first."""
    if len(before.launches) == 1 and len(after.launches) == 1:
        return []
    old, new = _by_kernel(before), _by_kernel(after)
    found: list[tuple[float, str]] = []
    for name in old | new:
        left, right = old.get(name), new.get(name)
        if left is None or right is None:
            text = f"{name} {in_microseconds(left or right or 0.0)}, {'new' if right else 'gone'}"
        else:
            text = _change(name, left, right, in_microseconds)
        if _moved(text):
            found.append((abs((right or 0.0) - (left or 0.0)), text))
    return [text for _, text in sorted(found, reverse=True)[:MOST_LAUNCHES]]


def _moved(text: str) -> bool:
    """Say whether a change is one: two figures, or a launch that is new or gone."""
    return "->" in text or text.endswith((", new", ", gone"))


def _by_kernel(profile: Profile) -> dict[str, float]:
    """Return the microseconds of each kernel, all its launches together."""
    return {share.kernel: share.microseconds for share in profile.by_kernel}


def _change(name: str, before: float, after: float, words: Callable[[float], str]) -> str:
    left, right = words(before), words(after)
    text = left if left == right else f"{left} -> {right}"
    return f"{name} {text}".strip()

"""Two profiles side by side: what a step changed of how a kernel uses the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..harness.records.evaluations import Evaluation
from ..harness.records.profiles import LaunchProfile, Profile
from ..tools.wording.measurements import (
    READ,
    WRITTEN,
    fp32_operations,
    summed,
    units_of,
)
from ..tools.wording.units import in_bytes
from . import words


class Compared(NamedTuple):
    """One figure of a kernel and of the one that came of it."""

    name: str
    before: str
    after: str


class UnitUse(NamedTuple):
    """How busy a unit of the GPU was, in per cent of its peak; None where it was not counted."""

    name: str
    before: float | None
    after: float | None


def key_figures(before: Evaluation | None, after: Evaluation | None) -> list[Compared]:
    """Return the figures that an engineer asks for first; those that neither has are left out."""
    rows = [
        Compared(name, _of(before, said), _of(after, said)) for name, said in _KEY_FIGURES.items()
    ]
    return [row for row in rows if {row.before, row.after} != {words.NONE}]


def unit_use(before: Evaluation | None, after: Evaluation | None) -> list[UnitUse]:
    """Return how busy the units were in the launch that takes most of the time."""
    old, new = units_of(_metrics(before)), units_of(_metrics(after))
    names = list(dict.fromkeys([*old, *new]))
    return [UnitUse(name, old.get(name), new.get(name)) for name in names]


def all_metrics(before: Evaluation | None, after: Evaluation | None) -> list[Compared]:
    """Return every metric of the launches that take most of the time, by ncu's names."""
    old, new = _metrics(before), _metrics(after)
    return [
        Compared(name, words.figure(old.get(name)), words.figure(new.get(name)))
        for name in sorted({*old, *new})
    ]


def launches(evaluation: Evaluation | None) -> list[tuple[str, str, str, str, str]]:
    """Return each kernel: its name, launches, shape of the longest, time, share of the time."""
    if evaluation is None or evaluation.profile is None:
        return []
    total = evaluation.profile.microseconds or 1.0
    return [
        (
            share.kernel,
            str(len(share.launches)),
            f"{_shape(share.longest.grid)} × {_shape(share.longest.block)}",
            words.microseconds(share.microseconds),
            words.share(share.microseconds / total),
        )
        for share in evaluation.profile.by_kernel
    ]


def advice(evaluation: Evaluation | None) -> Sequence[str]:
    """Return what the profiler's rules say of the launch that takes most of the time."""
    dominant = _dominant(evaluation)
    return dominant.advice if dominant else ()


def _dominant(evaluation: Evaluation | None) -> LaunchProfile | None:
    if evaluation is None or evaluation.profile is None or not evaluation.profile.launches:
        return None
    return evaluation.profile.dominant


def _metrics(evaluation: Evaluation | None) -> dict[str, float]:
    dominant = _dominant(evaluation)
    return dominant.metrics if dominant else {}


def _of(evaluation: Evaluation | None, said: Callable[[Evaluation], str | None]) -> str:
    if evaluation is None or evaluation.timing is None:
        return words.NONE
    return said(evaluation) or words.NONE


def _moved(evaluation: Evaluation, names: tuple[str, ...]) -> str | None:
    moved = summed(evaluation.profile, names) if evaluation.profile else None
    return None if moved is None else in_bytes(moved)


def _bandwidth(evaluation: Evaluation) -> str | None:
    profile = evaluation.profile
    if profile is None:
        return None
    read, written = summed(profile, READ), summed(profile, WRITTEN)
    if read is None or written is None:
        return None
    return f"{words.figure((read + written) / profile.microseconds / 1e3)} GB/s"


def _arithmetic(evaluation: Evaluation) -> str | None:
    profile: Profile | None = evaluation.profile
    if profile is None:
        return None
    operations = sum(fp32_operations(launch.metrics) for launch in profile.launches)
    if not operations:
        return None
    return f"{words.figure(operations / profile.microseconds / 1e3)} GFLOP/s"


def _resources(evaluation: Evaluation, name: str) -> str | None:
    kernels = evaluation.build.kernels if evaluation.build else ()
    return str(max(getattr(kernel, name) for kernel in kernels)) if kernels else None


def _bottleneck(evaluation: Evaluation) -> str | None:
    dominant = _dominant(evaluation)
    if dominant is None:
        return None
    return words.plain(" and ".join((dominant.bottleneck, *dominant.bottleneck_ties)))


def _occupancy(evaluation: Evaluation) -> str | None:
    dominant = _dominant(evaluation)
    limit = dominant.metrics.get("sm__maximum_warps_per_active_cycle_pct") if dominant else None
    return None if limit is None else f"{limit:.0f} %"


_KEY_FIGURES: dict[str, Callable[[Evaluation], str | None]] = {
    "time": lambda each: words.microseconds(each.timing.microseconds) if each.timing else None,
    "elapsed cycles": lambda each: (
        words.count(each.timing.elapsed_cycles)
        if each.timing and each.timing.elapsed_cycles else None
    ),
    "limited by": _bottleneck,
    "launches": lambda each: str(len(each.profile.launches)) if each.profile else None,
    "DRAM read": lambda each: _moved(each, READ),
    "DRAM written": lambda each: _moved(each, WRITTEN),
    "DRAM bandwidth": _bandwidth,
    "FP32 rate": _arithmetic,
    "occupancy limit": _occupancy,
    "registers a thread": lambda each: _resources(each, "registers"),
    "static shared memory, bytes": lambda each: _resources(each, "static_shared_bytes"),
    "bytes spilled": lambda each: _resources(each, "spill_store_bytes"),
}  # fmt: skip


def _shape(sizes: tuple[int, int, int]) -> str:
    shown = list(sizes)
    while len(shown) > 1 and shown[-1] == 1:
        shown.pop()
    return f"({', '.join(map(str, shown))})"

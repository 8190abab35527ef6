"""What each launch of a call did: metrics, bottlenecks, lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from .record import Record
from .timings import Provenance


class LineProfile(Record):
    """Counters of one source line of one kernel."""

    line: int
    instructions: float
    """Warp instructions executed, whole grid."""
    sectors: float = 0.0
    """Global 32-byte sectors requested, whole grid."""
    shared_wavefronts: float = 0.0


Bottleneck = Literal[
    "dram", "l2", "lsu", "shared_memory", "compute", "tensor", "latency", "launch", "atomic"
]
ELAPSED_CYCLES = "gpc__cycles_elapsed.max"
"""The paper's measure of a launch, by its name in Nsight Compute."""
ALWAYS_KEPT = frozenset(
    {"gpu__time_duration.sum", ELAPSED_CYCLES, "dram__bytes_read.sum", "dram__bytes_write.sum"}
)
"""Metrics that every launch of a profile has, however many there are."""
MOST_DETAILED = 48
"""Launches of a profile that keep all of their metrics."""


class LaunchProfile(Record):
    """One kernel launch: Nsight Compute's metric names and the time model's terms."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int = 0
    microseconds: float
    metrics: dict[str, float]
    """By Nsight Compute's own names, in its base units (ns, bytes, %, counts)."""
    terms: dict[str, float] = Field(default_factory=dict)
    """Time model only: microseconds that each resource alone would need."""
    bottleneck: Bottleneck
    bottleneck_ties: tuple[Bottleneck, ...] = ()
    """Other resources within 15 % of the first."""
    lines: tuple[LineProfile, ...] = ()
    """Hottest source lines first."""
    advice: tuple[str, ...] = ()
    """Rules that fired, in words."""
    like: int | None = None
    """Place among the profile's launches of an earlier one that was the same but for addresses:
    its metrics are this one's, and so is its time where this one's was not taken."""


@dataclass(frozen=True)
class KernelShare:
    """All launches of one kernel in a profile."""

    kernel: str
    launches: tuple[LaunchProfile, ...]
    """In order."""

    @property
    def microseconds(self) -> float:
        """Of all of them together."""
        return sum(launch.microseconds for launch in self.launches)

    @property
    def longest(self) -> LaunchProfile:
        """The launch that takes most of it."""
        return max(self.launches, key=lambda launch: launch.microseconds)


class Profile(Record):
    """All launches of one call of `launch`, in order.

    Where there are many, the costliest have all of their metrics and the others those of
    `ALWAYS_KEPT`.
    """

    launches: tuple[LaunchProfile, ...]
    gpu: str
    provenance: Provenance

    @property
    def microseconds(self) -> float:
        """Of all launches together."""
        return sum(launch.microseconds for launch in self.launches)

    @property
    def by_kernel(self) -> tuple[KernelShare, ...]:
        """The launches of each kernel, those first that take most of the time together."""
        found: dict[str, list[LaunchProfile]] = {}
        for launch in self.launches:
            found.setdefault(launch.kernel, []).append(launch)
        shares = [KernelShare(kernel, tuple(launches)) for kernel, launches in found.items()]
        return tuple(sorted(shares, key=lambda share: -share.microseconds))

    @property
    def dominant(self) -> LaunchProfile:
        """The longest launch of the kernel whose launches take most of the time together."""
        return self.by_kernel[0].longest

    @property
    def elapsed_cycles(self) -> float | None:
        """GPU clock cycles of all launches together, or None where one has no count."""
        cycles = [launch.metrics.get(ELAPSED_CYCLES) for launch in self.launches]
        known = [count for count in cycles if count]
        return sum(known) if len(known) == len(cycles) else None

    def focused(self) -> Profile:
        """Return the profile with all metrics of the launches that matter alone.

        Those are the longest of each of the costliest kernels and the longest of all that are like
        no other, `MOST_DETAILED` together.
        """
        shares = self.by_kernel
        ranked = sorted(
            (launch for launch in self.launches if launch.like is None),
            key=lambda launch: -launch.microseconds,
        )
        chosen = [*(share.longest for share in shares[: MOST_DETAILED // 2]), *ranked]
        kept = set(list(dict.fromkeys(map(id, chosen)))[:MOST_DETAILED])
        return self.model_copy(update={"launches": tuple(
            launch if id(launch) in kept else launch.model_copy(update={
                "metrics": {name: value for name, value in launch.metrics.items()
                            if name in ALWAYS_KEPT},
                "terms": {}, "lines": (), "advice": (),
            })
            for launch in self.launches
        )})  # fmt: skip

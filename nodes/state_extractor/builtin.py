"""Built-in state extractor: read the bottleneck off the profile and name its cause."""

from __future__ import annotations

from ...harness.records.profiles import Bottleneck, KernelShare, Profile
from ...memory.knowledge.states.signature import bottlenecks_of, explain, named, signature_of
from ..records.observations import LaunchSeen, Observation

CAUSES: dict[Bottleneck, str] = {
    "dram": "limited by device memory bandwidth",
    "l2": "limited by the L2 cache's request rate or bandwidth",
    "lsu": "limited by the load/store unit: too many wavefronts per useful byte",
    "shared_memory": "limited by shared memory wavefronts",
    "compute": "limited by instruction issue or an arithmetic pipe",
    "tensor": "limited by the tensor pipe",
    "latency": "limited by latency: too little work in flight to hide it",
    "launch": "limited by the rate at which blocks are launched",
    "atomic": "limited by atomics on the same address",
}


MOST_KERNELS = 12
"""Kernels of a program that an observation lists: those that take most of the time."""
_AT_PEAK = ("dram", "fma", "fp64", "fp16", "tensor")
"""Dimensions of a signature whose peak no way of writing a kernel gets around."""


def describe_state(profile: Profile, bound_us: float | None = None) -> Observation:
    """Return signature, bottlenecks and a description of the launch that takes most time.

    Args:
        profile: of the whole program.
        bound_us: what no kernel of the task can be faster than, where that is known.
    """
    signature = signature_of(profile, bound_us=bound_us)
    primary, secondary = bottlenecks_of(profile)
    return Observation(
        signature=signature.values,
        signature_name=signature.name,
        primary=primary,
        secondary=secondary,
        description=sentence(profile, profile.by_kernel[0]),
        features=tuple(explain(signature)),
        launches=launches_of(profile, bound_us),
        author="builtin",
    )


def launches_of(profile: Profile, bound_us: float | None = None) -> tuple[LaunchSeen, ...]:
    """Return the kernels that take most of the time, in order of their first launch."""
    places: dict[str, int] = {}
    for place, launch in enumerate(profile.launches):
        places.setdefault(launch.kernel, place)
    listed = sorted(profile.by_kernel[:MOST_KERNELS], key=lambda share: places[share.kernel])
    return tuple(_seen(profile, share, places[share.kernel], bound_us) for share in listed)


def _seen(
    profile: Profile, share: KernelShare, first: int, bound_us: float | None
) -> LaunchSeen:
    signature = signature_of(profile, share.longest, bound_us).values
    primary, secondary = bottlenecks_of(profile, share.longest)
    known = named(signature)
    return LaunchSeen(
        kernel=share.kernel,
        first=first,
        launches=len(share.launches),
        microseconds=share.microseconds,
        share=min(1.0, share.microseconds / profile.microseconds),
        bound_us=share.microseconds * max(known.get(name, 0.0) for name in _AT_PEAK),
        signature=signature,
        primary=primary,
        secondary=secondary,
        description=sentence(profile, share),
    )


def sentence(profile: Profile, share: KernelShare) -> str:
    """Return one line: what limits a kernel, and the numbers that say so."""
    launch = share.longest
    metrics = launch.metrics
    facts = []
    for name, label, pattern in (
        ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "DRAM", "{:.0f} %"),
        ("l1tex__throughput.avg.pct_of_peak_sustained_elapsed", "L1", "{:.0f} %"),
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "SM", "{:.0f} %"),
        (
            "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
            "sectors/load",
            "{:.1f}",
        ),
        ("sm__maximum_warps_per_active_cycle_pct", "occupancy", "{:.0f} %"),
    ):
        if name in metrics:
            facts.append(f"{label} {pattern.format(metrics[name])}")
    several = ""
    if len(profile.launches) > 1:
        part = share.microseconds / (profile.microseconds or 1.0)
        several = (
            f" ({len(share.launches)} of {len(profile.launches)} launches, {part:.0%} of the time)"
        )
    cause = f"{launch.kernel}{several}: {CAUSES[launch.bottleneck]}"
    return "; ".join([cause, *([", ".join(facts)] if facts else [])])

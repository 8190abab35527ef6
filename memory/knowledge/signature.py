"""Turn a profile into a fixed vector, so that kernels in the same situation lie close together.

Every dimension is scaled to [0, 1]. The metrics are those of the dominant launch, under Nsight
Compute's names; the last dimensions describe the whole program. A metric that the device did not
report makes its dimension 0 (achieved occupancy: its limit), the same on every device that cannot
see it.
A state's centroid names only the dimensions that define it; the others stand at `neutral`, the
value of an unremarkable kernel, so that a kernel with a striking feature goes to the state that
names that feature.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from ...harness.records import Bottleneck, LaunchProfile, Profile
from ..records import SIGNATURE_NAME, Signature

Metrics = Mapping[str, float]
BOTTLENECKS: tuple[str, ...] = get_args(Bottleneck)


@dataclass(frozen=True)
class Dimension:
    """One number of a signature."""

    name: str
    words: str
    """What a value says, with `{}` for it in percent."""
    neutral: float
    """Value of an unremarkable kernel."""
    weight: float
    """How much a difference counts in a distance; 1 is usual, 2 to 4 mark a symptom."""
    measure: Callable[[Profile, LaunchProfile], float]
    """From the program and its dominant launch; clamped to [0, 1] afterwards."""


def _first(metrics: Metrics, *names: str) -> float:
    """Return the first metric reported among alternative names, else 0."""
    return next((float(metrics[name]) for name in names if name in metrics), 0.0)


def _percent(*names: str) -> Callable[[Profile, LaunchProfile], float]:
    return lambda _, launch: _first(launch.metrics, *names) / 100.0


def _pipe(*pipes: str) -> Callable[[Profile, LaunchProfile], float]:
    """Utilisation of the busiest of some execution pipes, under any of ncu's names for it."""
    names = [
        template.format(pipe)
        for pipe in pipes
        for template in (
            "sm__inst_executed_pipe_{}.avg.pct_of_peak_sustained_elapsed",
            "sm__inst_executed_pipe_{}.avg.pct_of_peak_sustained_active",
            "sm__inst_executed_pipe_{}.sum.pct_of_peak_sustained_active",
            "sm__pipe_{}_cycles_active.avg.pct_of_peak_sustained_elapsed",
            "sm__pipe_{}_cycles_active.avg.pct_of_peak_sustained_active",
        )
    ]
    return lambda _, launch: max(launch.metrics.get(name, 0.0) for name in names) / 100.0


def _sectors_per_request(direction: str) -> Callable[[Profile, LaunchProfile], float]:
    """32-byte sectors for each warp's request, over the 32 of a fully scattered one."""
    suffix = f"pipe_lsu_mem_global_op_{direction}"

    def measure(_: Profile, launch: LaunchProfile) -> float:
        metrics = launch.metrics
        ratio = metrics.get(f"l1tex__average_t_sectors_per_request_{suffix}.ratio")
        if ratio is None:
            requests = metrics.get(f"l1tex__t_requests_{suffix}.sum", 0.0)
            sectors = metrics.get(f"l1tex__t_sectors_{suffix}.sum", 0.0)
            ratio = sectors / requests if requests else 0.0
        return ratio / 32.0

    return measure


def _uncoalesced(profile: Profile, launch: LaunchProfile) -> float:
    """Share of the sectors fetched and stored that coalesced accesses would not need.

    From ncu's ideal sector count, else from the bytes used of each sector, else from sectors per
    request: more than the 16 that the widest coalesced accesses need are taken for scattered
    4-byte ones, fewer for coalesced.
    """
    metrics = launch.metrics
    total = metrics.get("memory_l2_theoretical_sectors_global", 0.0)
    ideal = metrics.get("memory_l2_theoretical_sectors_global_ideal")
    if total and ideal is not None:
        return 1.0 - ideal / total
    wasted = weight = 0.0
    for direction in ("ld", "st"):
        sectors = metrics.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{direction}.sum", 0.0)
        used = metrics.get(
            f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{direction}.ratio"
        )
        if used is None:
            per_request = 32.0 * _sectors_per_request(direction)(profile, launch)
            used = 128.0 / per_request if per_request > 16.0 else 32.0
        # Lanes that read the same word use more bytes than were fetched.
        wasted += sectors * max(0.0, 1.0 - used / 32.0)
        weight += sectors
    return wasted / weight if weight else 0.0


def _bank_conflicts(_: Profile, launch: LaunchProfile) -> float:
    """Share of the shared-memory wavefronts that a conflict-free layout would not need."""
    total = launch.metrics.get("memory_l1_wavefronts_shared", 0.0)
    ideal = launch.metrics.get("memory_l1_wavefronts_shared_ideal", total)
    return 1.0 - ideal / total if total else 0.0


def _shared_share(_: Profile, launch: LaunchProfile) -> float:
    """Wavefronts to shared memory, over those and the global requests together."""
    shared = launch.metrics.get("memory_l1_wavefronts_shared", 0.0)
    requests = _requests(launch.metrics, "global_op_ld", "global_op_st")
    return shared / (shared + requests) if shared else 0.0


def _requests(metrics: Metrics, *kinds: str) -> float:
    return sum(metrics.get(f"l1tex__t_requests_pipe_lsu_mem_{kind}.sum", 0.0) for kind in kinds)


def _sectors(metrics: Metrics, *kinds: str) -> float:
    return sum(metrics.get(f"l1tex__t_sectors_pipe_lsu_mem_{kind}.sum", 0.0) for kind in kinds)


def _spills(_: Profile, launch: LaunchProfile) -> float:
    """Local-memory sectors over local and global ones, or what ptxas says it spilled."""
    metrics = launch.metrics
    local = _sectors(metrics, "local_op_ld", "local_op_st") or _sectors(metrics, "local")
    usual = _sectors(metrics, "global_op_ld", "global_op_st")
    static = metrics.get("ptxas__spill_store_bytes", 0.0) + metrics.get(
        "ptxas__spill_load_bytes", 0.0
    )
    # 512 bytes of spill instructions in the code are as bad as it usually gets.
    return max(local / (local + usual) if local else 0.0, min(static / 512.0, 0.5))


def _atomics(_: Profile, launch: LaunchProfile) -> float:
    """Sectors of global atomics and reductions over all global sectors."""
    atomic = _sectors(launch.metrics, "global_op_atom", "global_op_red")
    usual = _sectors(launch.metrics, "global_op_ld", "global_op_st")
    return atomic / (atomic + usual) if atomic else 0.0


def _idle_lanes(_: Profile, launch: LaunchProfile) -> float:
    """Lanes idle in an average warp instruction (predicated ones do not count as idle)."""
    active = _first(
        launch.metrics,
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    )
    return 1.0 - active / 32.0 if active else 0.0


def _limiter(kind: str) -> Callable[[Profile, LaunchProfile], float]:
    """1 where this resource alone bounds the blocks on an SM below what its warps would allow."""

    def measure(_: Profile, launch: LaunchProfile) -> float:
        limits = {
            name: launch.metrics.get(f"launch__occupancy_limit_{name}", math.inf)
            for name in ("warps", "registers", "shared_mem", "blocks")
        }
        lowest = min(limits.values())
        if math.isinf(lowest) or limits["warps"] == lowest:
            return 0.0
        return 1.0 if limits[kind] == lowest else 0.0

    return measure


def _unfilled(_: Profile, launch: LaunchProfile) -> float:
    """How much of the GPU one wave leaves empty: 1 for a lone block, 0 from a full wave on."""
    waves = launch.metrics.get("launch__waves_per_multiprocessor")
    return 0.0 if waves is None else 1.0 - min(waves, 1.0)


def _many_waves(_: Profile, launch: LaunchProfile) -> float:
    """log2 of the waves over 10: 1 from about a thousand waves on."""
    waves = launch.metrics.get("launch__waves_per_multiprocessor", 0.0)
    return math.log2(1.0 + waves) / 10.0


def _compute_balance(profile: Profile, launch: LaunchProfile) -> float:
    """Arithmetic intensity against the ridge: 0.5 on it, towards 1 above, towards 0 below.

    The ratio of the two utilisations is the ratio of intensity to ridge, whatever the GPU.
    """
    pipes = ("fma", "fp64", "fp16", "tensor")
    arithmetic = max(_pipe(name)(profile, launch) for name in pipes)
    memory = _DRAM(profile, launch)
    return arithmetic / (arithmetic + memory) if arithmetic + memory else 0.0


_DRAM = _percent(
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)


def _duration(profile: Profile, _: LaunchProfile) -> float:
    """log10 of the program's microseconds over 5: 0 at 1 us, 1 at 100 ms."""
    return math.log10(max(profile.microseconds, 1.0)) / 5.0


def _more_launches(profile: Profile, _: LaunchProfile) -> float:
    """1 - 1/launches: 0 for one kernel, 0.5 for two."""
    return 1.0 - 1.0 / len(profile.launches)


def _other_launches(profile: Profile, _: LaunchProfile) -> float:
    """Share of the time that is not of the dominant launch's kernel (Amdahl)."""
    total = profile.microseconds
    return 1.0 - profile.by_kernel[0].microseconds / total if total > 0 else 0.0


def _is_bottleneck(name: str) -> Callable[[Profile, LaunchProfile], float]:
    return lambda _, launch: 1.0 if launch.bottleneck == name else 0.0


_ELAPSED = "avg.pct_of_peak_sustained_elapsed"
DIMENSIONS: tuple[Dimension, ...] = (
    Dimension("sm", "SM throughput is {} of peak", 0.4, 1, _percent(f"sm__throughput.{_ELAPSED}")),
    Dimension("dram", "DRAM throughput is {} of peak", 0.4, 1, _DRAM),
    Dimension("l2", "L2 throughput is {} of peak", 0.4, 1, _percent(f"lts__throughput.{_ELAPSED}")),
    Dimension(
        "l1", "L1 throughput is {} of peak", 0.4, 1, _percent(f"l1tex__throughput.{_ELAPSED}")
    ),
    Dimension(
        "l1_hit", "{} of the L1 sectors hit", 0.3, 0.5, _percent("l1tex__t_sector_hit_rate.pct")
    ),
    Dimension(
        "l2_hit", "{} of the L2 sectors hit", 0.5, 0.5, _percent("lts__t_sector_hit_rate.pct")
    ),
    Dimension(
        "occupancy_limit", "occupancy can reach {}", 0.9, 0.5,
        _percent("sm__maximum_warps_per_active_cycle_pct"),
    ),
    Dimension(
        "occupancy", "occupancy reaches {}", 0.7, 1,
        _percent(
            "sm__warps_active.avg.pct_of_peak_sustained_active",
            "sm__maximum_warps_per_active_cycle_pct",
        ),
    ),
    Dimension("limit_registers", "registers limit occupancy", 0.0, 0.5, _limiter("registers")),
    Dimension("limit_shared", "shared memory limits occupancy", 0.0, 0.5, _limiter("shared_mem")),
    Dimension("limit_blocks", "the block slots limit occupancy", 0.0, 1, _limiter("blocks")),
    Dimension(
        "load_sectors", "a load request touches {} of 32 sectors", 0.15, 1,
        _sectors_per_request("ld"),
    ),
    Dimension(
        "store_sectors", "a store request touches {} of 32 sectors", 0.15, 1,
        _sectors_per_request("st"),
    ),
    Dimension("uncoalesced", "{} of the sectors are wasted", 0.0, 3, _uncoalesced),
    Dimension("bank_conflicts", "{} of the shared wavefronts are conflicts", 0.0, 3,
              _bank_conflicts),
    Dimension("shared_share", "{} of the accesses go to shared memory", 0.2, 1, _shared_share),
    Dimension("fma", "the FMA pipe is {} busy", 0.2, 1, _pipe("fma")),
    Dimension("alu", "the ALU pipe is {} busy", 0.2, 1, _pipe("alu")),
    Dimension("xu", "the special-function pipe is {} busy", 0.05, 2, _pipe("xu")),
    Dimension("lsu", "the load/store pipe is {} busy", 0.2, 1, _pipe("lsu")),
    Dimension("fp64", "the FP64 pipe is {} busy", 0.0, 2, _pipe("fp64")),
    Dimension("fp16", "the FP16 pipe is {} busy", 0.0, 1, _pipe("fp16", "fma_type_fp16")),
    Dimension("tensor", "the tensor pipe is {} busy", 0.0, 1,
              _pipe("tensor", "tensor_op_hmma", "tensor_op_gmma")),
    Dimension("idle_lanes", "{} of the lanes idle", 0.02, 2, _idle_lanes),
    Dimension("unfilled", "one wave leaves {} of the GPU empty", 0.0, 2, _unfilled),
    Dimension("many_waves", "the grid makes many waves (log scale {})", 0.3, 0.5, _many_waves),
    Dimension("spills", "{} of the memory traffic is spills", 0.0, 4, _spills),
    Dimension("atomics", "{} of the global traffic is atomics", 0.0, 3, _atomics),
    Dimension(
        "compute_balance", "arithmetic against DRAM stands at {} (ridge 50 %)", 0.4, 1,
        _compute_balance,
    ),
    Dimension("duration", "it runs long (log scale {})", 0.4, 0.25, _duration),
    Dimension("more_launches", "several launches (1 - 1/n is {})", 0.0, 2, _more_launches),
    Dimension("other_launches", "{} of the time is in other kernels", 0.0, 2, _other_launches),
    *(
        Dimension(f"bound_{name}", f"{name} is the bottleneck", 0.0, 0.2, _is_bottleneck(name))
        for name in BOTTLENECKS
    ),
)  # fmt: skip

_TOTAL_WEIGHT = sum(dimension.weight for dimension in DIMENSIONS)
_SCALES = tuple(math.sqrt(dimension.weight / _TOTAL_WEIGHT) for dimension in DIMENSIONS)
_ALWAYS_COUNTED = ("sm", "dram", "l2", "l1", "occupancy_limit", "occupancy")
"""Dimensions of which one at least is above 0 wherever counters were read."""
_STRIKING = 0.05
"""Weighted deviation below which a dimension is not worth words."""


def signature_of(profile: Profile, launch: LaunchProfile | None = None) -> Signature:
    """Return the signature of a profile: one value in [0, 1] for each of `DIMENSIONS`.

    Args:
        profile: of the whole program.
        launch: one of its launches; by default the dominant one.
    """
    seen = launch or profile.dominant
    return Signature(
        values=tuple(
            round(min(max(dimension.measure(profile, seen), 0.0), 1.0), 6)
            for dimension in DIMENSIONS
        )
    )


def bottlenecks_of(
    profile: Profile, launch: LaunchProfile | None = None
) -> tuple[Bottleneck, Bottleneck | None]:
    """Return a launch's bottleneck and the second: a tie, or its next time term.

    Args:
        profile: of the whole program.
        launch: one of its launches; by default the dominant one.
    """
    launch = launch or profile.dominant
    if launch.bottleneck_ties:
        return launch.bottleneck, launch.bottleneck_ties[0]
    others = sorted(
        (name for name in launch.terms if name in BOTTLENECKS and name != launch.bottleneck),
        key=lambda name: (-launch.terms[name], name),
    )
    second: Any = others[0] if others and launch.terms[others[0]] > 0 else None
    return launch.bottleneck, second


def centroid_of(features: Mapping[str, float]) -> tuple[float, ...]:
    """Return full values from named ones; a dimension not named stands at its neutral value.

    Raises:
        ValueError: a name is no dimension, or a value lies outside [0, 1].
    """
    unknown = set(features) - {dimension.name for dimension in DIMENSIONS}
    if unknown or not all(0.0 <= value <= 1.0 for value in features.values()):
        raise ValueError(f"bad signature features {sorted(unknown) or dict(features)}")
    return tuple(features.get(dimension.name, dimension.neutral) for dimension in DIMENSIONS)


def embed(values: Sequence[float]) -> list[float]:
    """Return the vector whose Euclidean distances are signature distances."""
    return [value * scale for value, scale in zip(values, _SCALES, strict=True)]


def distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the weighted root mean square difference of two signatures, in [0, 1]."""
    return math.dist(embed(first), embed(second))


def explain(signature: Signature, limit: int = 5) -> list[str]:
    """Return the most striking features in words, the most striking first.

    Where no counter was read, a dimension at 0 says nothing.
    """
    values = {each.name: value for each, value in zip(DIMENSIONS, signature.values, strict=True)}
    counted = any(values[name] > 0.0 for name in _ALWAYS_COUNTED)
    ranked = sorted(
        zip(DIMENSIONS, signature.values, strict=True),
        key=lambda pair: (-abs(pair[1] - pair[0].neutral) * pair[0].weight, pair[0].name),
    )
    return [
        dimension.words.format(f"{value:.0%}")
        for dimension, value in ranked
        if abs(value - dimension.neutral) * dimension.weight > _STRIKING
        and (value > 0.0 or (counted and "{}" in dimension.words))
    ][:limit]


def to_text(values: Sequence[float]) -> str:
    """Return the canonical JSON document of signature values, as the index embeds it."""
    document = {"signature": SIGNATURE_NAME, "values": [round(value, 6) for value in values]}
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def from_text(document: str) -> tuple[float, ...]:
    """Return the values of a document written by `to_text`.

    Raises:
        ValueError: it is of another signature version or length.
    """
    found = json.loads(document)
    values = tuple(float(value) for value in found["values"])
    if found["signature"] != SIGNATURE_NAME or len(values) != len(DIMENSIONS):
        raise ValueError(f"not a {SIGNATURE_NAME} document")
    return values

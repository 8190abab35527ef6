"""Turn a launch's profile into a fixed vector, so that kernels in the same situation lie close.

Every dimension is scaled to [0, 1]. The metrics are those of one launch, under Nsight Compute's
names; a few dimensions describe the whole program. What the device did not report is `UNKNOWN`, and
a distance leaves out what either side does not know: a profile with few counters lies where the
same kernel's profile with many does.
A state's centroid names the dimensions that define it. Of `EARLIER`, the layout before this one,
those that it does not name stand at `neutral`, the value of an unremarkable kernel, so that a
kernel with a striking feature goes to the state that names that feature; later ones are unknown.
What was stored in the earlier layout is read by `completed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from ....harness.nsight.bottleneck import second_of, stalls
from ....harness.records.profiles import Bottleneck, LaunchProfile, Profile
from ...records.states import Signature

Metrics = Mapping[str, float]
Measure = Callable[[Profile, LaunchProfile], float | None]
UNKNOWN = -1.0
"""Value of a dimension that nobody measured."""
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
    measure: Measure
    """From the program and one of its launches, None where that is not known; clamped to [0, 1]
    afterwards."""


def _first(metrics: Metrics, *names: str) -> float | None:
    """Return the first metric reported among alternative names."""
    return next((float(metrics[name]) for name in names if name in metrics), None)


def _percent(*names: str) -> Measure:
    def measure(_: Profile, launch: LaunchProfile) -> float | None:
        value = _first(launch.metrics, *names)
        return None if value is None else value / 100.0

    return measure


def _pipe(*pipes: str) -> Measure:
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

    def measure(_: Profile, launch: LaunchProfile) -> float | None:
        known = [launch.metrics[name] for name in names if name in launch.metrics]
        return max(known) / 100.0 if known else None

    return measure


def _sectors_per_request(direction: str) -> Measure:
    """32-byte sectors for each warp's request, over the 32 of a fully scattered one."""
    suffix = f"pipe_lsu_mem_global_op_{direction}"

    def measure(_: Profile, launch: LaunchProfile) -> float | None:
        metrics = launch.metrics
        ratio = metrics.get(f"l1tex__average_t_sectors_per_request_{suffix}.ratio")
        if ratio is None:
            requests = metrics.get(f"l1tex__t_requests_{suffix}.sum")
            sectors = metrics.get(f"l1tex__t_sectors_{suffix}.sum")
            if requests is None or sectors is None:
                return None
            ratio = sectors / requests if requests else 0.0
        return ratio / 32.0

    return measure


def _uncoalesced(profile: Profile, launch: LaunchProfile) -> float | None:
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
    if not _counts_global(metrics):
        return None
    wasted = weight = 0.0
    for direction in ("ld", "st"):
        sectors = metrics.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{direction}.sum", 0.0)
        used = metrics.get(
            f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{direction}.ratio"
        )
        if used is None:
            per_request = 32.0 * (_sectors_per_request(direction)(profile, launch) or 0.0)
            used = 128.0 / per_request if per_request > 16.0 else 32.0
        # Lanes that read the same word use more bytes than were fetched.
        wasted += sectors * max(0.0, 1.0 - used / 32.0)
        weight += sectors
    return wasted / weight if weight else 0.0


def _bank_conflicts(_: Profile, launch: LaunchProfile) -> float | None:
    """Share of the shared-memory wavefronts that a conflict-free layout would not need."""
    total = launch.metrics.get("memory_l1_wavefronts_shared")
    ideal = launch.metrics.get("memory_l1_wavefronts_shared_ideal", total)
    if total is None or ideal is None:
        return None
    return 1.0 - ideal / total if total else 0.0


def _shared_share(_: Profile, launch: LaunchProfile) -> float | None:
    """Wavefronts to shared memory, over those and the global requests together."""
    shared = launch.metrics.get("memory_l1_wavefronts_shared")
    if shared is None:
        return None
    if _LOADS not in launch.metrics:
        return None if shared else 0.0
    requests = _requests(launch.metrics, "global_op_ld", "global_op_st")
    return shared / (shared + requests) if shared else 0.0


def _requests(metrics: Metrics, *kinds: str) -> float:
    return sum(metrics.get(f"l1tex__t_requests_pipe_lsu_mem_{kind}.sum", 0.0) for kind in kinds)


def _sectors(metrics: Metrics, *kinds: str) -> float:
    return sum(metrics.get(f"l1tex__t_sectors_pipe_lsu_mem_{kind}.sum", 0.0) for kind in kinds)


def _counts_global(metrics: Metrics) -> bool:
    """Say whether sectors of global loads were counted."""
    return "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum" in metrics


def _spills(_: Profile, launch: LaunchProfile) -> float | None:
    """Local-memory sectors over local and global ones, or what ptxas says it spilled."""
    metrics = launch.metrics
    if not (_counts_global(metrics) or "ptxas__spill_store_bytes" in metrics):
        return None
    local = _sectors(metrics, "local_op_ld", "local_op_st") or _sectors(metrics, "local")
    usual = _sectors(metrics, "global_op_ld", "global_op_st")
    static = metrics.get("ptxas__spill_store_bytes", 0.0) + metrics.get(
        "ptxas__spill_load_bytes", 0.0
    )
    # 512 bytes of spill instructions in the code are as bad as it usually gets.
    return max(local / (local + usual) if local else 0.0, min(static / 512.0, 0.5))


def _atomics(_: Profile, launch: LaunchProfile) -> float | None:
    """Sectors of global atomics and reductions over all global sectors."""
    if not _counts_global(launch.metrics):
        return None
    atomic = _sectors(launch.metrics, "global_op_atom", "global_op_red")
    usual = _sectors(launch.metrics, "global_op_ld", "global_op_st")
    return atomic / (atomic + usual) if atomic else 0.0


def _idle_lanes(_: Profile, launch: LaunchProfile) -> float | None:
    """Lanes idle in an average warp instruction (predicated ones do not count as idle)."""
    active = _first(
        launch.metrics,
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    )
    return 1.0 - active / 32.0 if active else None


def _limiter(kind: str) -> Measure:
    """1 where this resource alone bounds the blocks on an SM below what its warps would allow."""

    def measure(_: Profile, launch: LaunchProfile) -> float | None:
        limits = {
            name: launch.metrics.get(f"launch__occupancy_limit_{name}", math.inf)
            for name in ("warps", "registers", "shared_mem", "blocks")
        }
        lowest = min(limits.values())
        if math.isinf(lowest):
            return None
        return float(limits["warps"] != lowest and limits[kind] == lowest)

    return measure


def _unfilled(_: Profile, launch: LaunchProfile) -> float | None:
    """How much of the GPU one wave leaves empty: 1 for a lone block, 0 from a full wave on."""
    waves = launch.metrics.get(_WAVES)
    return None if waves is None else 1.0 - min(waves, 1.0)


def _many_waves(_: Profile, launch: LaunchProfile) -> float | None:
    """log2 of the waves over 10: 1 from about a thousand waves on."""
    waves = launch.metrics.get(_WAVES)
    return None if waves is None else math.log2(1.0 + waves) / 10.0


def _compute_balance(profile: Profile, launch: LaunchProfile) -> float | None:
    """Arithmetic intensity against the ridge: 0.5 on it, towards 1 above, towards 0 below.

    The ratio of the two utilisations is the ratio of intensity to ridge, whatever the GPU.
    """
    pipes = (_pipe(name)(profile, launch) for name in ("fma", "fp64", "fp16", "tensor"))
    known = [busy for busy in pipes if busy is not None]
    memory = _DRAM(profile, launch)
    if not known or memory is None:
        return None
    arithmetic = max(known)
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


def _other_launches(profile: Profile, launch: LaunchProfile) -> float:
    """Share of the time that is not of the launch's kernel (Amdahl)."""
    total = profile.microseconds
    own = sum(each.microseconds for each in profile.launches if each.kernel == launch.kernel)
    return 1.0 - own / total if total > 0 else 0.0


def _is_bottleneck(name: str) -> Measure:
    return lambda _, launch: 1.0 if launch.bottleneck == name else 0.0


# The next are not of `EARLIER` -----------------------------------------------------------------


def _stall(*reasons: str) -> Measure:
    """Share of these reasons in why warps do not issue; only a GPU's own profiler tells."""

    def measure(_: Profile, launch: LaunchProfile) -> float | None:
        found = stalls(launch.metrics)
        return sum(found.get(reason, 0.0) for reason in reasons) if found else None

    return measure


def _registers(_: Profile, launch: LaunchProfile) -> float | None:
    """Registers of a thread, over the 255 that it can have."""
    count = launch.metrics.get("launch__registers_per_thread")
    return None if count is None else count / 255.0


def _shared_bytes(_: Profile, launch: LaunchProfile) -> float | None:
    """Shared memory of a block, over 227 KiB."""
    static = launch.metrics.get("launch__shared_mem_per_block_static")
    return None if static is None else (static + launch.dynamic_shared_bytes) / (227 * 1024)


def _threads(_: Profile, launch: LaunchProfile) -> float:
    """log2 of the threads of a block over 10: 1 for 1024."""
    return math.log2(math.prod(launch.block)) / 10.0


def _tail(_: Profile, launch: LaunchProfile) -> float | None:
    """How much of its waves' room the last wave of several leaves empty."""
    waves = launch.metrics.get(_WAVES)
    if waves is None:
        return None
    whole = math.ceil(waves)
    return 1.0 - waves / whole if whole > 1 else 0.0


def _dram_bytes(launch: LaunchProfile) -> tuple[float, float] | None:
    """Bytes read from and written to device memory."""
    read = launch.metrics.get("dram__bytes_read.sum")
    written = launch.metrics.get("dram__bytes_write.sum")
    return None if read is None or written is None else (read, written)


def _written(_: Profile, launch: LaunchProfile) -> float | None:
    """Writes among the traffic to device memory."""
    moved = _dram_bytes(launch)
    return moved[1] / sum(moved) if moved and sum(moved) else None


def _thread_bytes(_: Profile, launch: LaunchProfile) -> float | None:
    """log2 of the bytes of device memory for each thread over 16: 0.25 for 4 of them."""
    moved = _dram_bytes(launch)
    threads = math.prod(launch.grid) * math.prod(launch.block)
    return math.log2(1.0 + sum(moved) / threads) / 16.0 if moved else None


def _asked_again(_: Profile, launch: LaunchProfile) -> float | None:
    """log2 of the bytes of global accesses for one of device memory over 8."""
    moved = _dram_bytes(launch)
    if not moved or not sum(moved) or not _counts_global(launch.metrics):
        return None
    asked = 32.0 * _sectors(launch.metrics, "global_op_ld", "global_op_st")
    return math.log2(1.0 + asked / sum(moved)) / 8.0


_ELAPSED = "avg.pct_of_peak_sustained_elapsed"
_LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
_WAVES = "launch__waves_per_multiprocessor"
_EARLIER: tuple[Dimension, ...] = (
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

_LATER: tuple[Dimension, ...] = (
    Dimension("stall_memory", "warps wait for device memory {} of their waiting", 0.4, 1,
              _stall("long_scoreboard")),
    Dimension("stall_queue", "warps wait for the load/store queues {} of their waiting", 0.05, 1,
              _stall("lg_throttle", "mio_throttle", "tex_throttle")),
    Dimension("stall_shared", "warps wait for shared memory {} of their waiting", 0.1, 1,
              _stall("short_scoreboard")),
    Dimension("stall_barrier", "warps wait at barriers {} of their waiting", 0.05, 1,
              _stall("barrier")),
    Dimension("stall_pipe", "warps wait for a busy pipe {} of their waiting", 0.1, 1,
              _stall("math_pipe_throttle")),
    Dimension("stall_chain", "warps wait for their own last result {} of their waiting", 0.2, 1,
              _stall("wait")),
    Dimension("stall_fetch", "warps wait for instructions {} of their waiting", 0.05, 1,
              _stall("no_instruction", "branch_resolving", "imc_miss")),
    Dimension("register_share", "a thread has {} of the registers it can have", 0.15, 0.5,
              _registers),
    Dimension("shared_room", "a block has {} of an SM's shared memory", 0.0, 0.5, _shared_bytes),
    Dimension("block_threads", "blocks of many threads (log scale {})", 0.8, 0.5, _threads),
    Dimension("tail", "the last wave leaves {} of the room empty", 0.1, 0.5, _tail),
    Dimension("written", "{} of the DRAM traffic is writes", 0.4, 0.25, _written),
    Dimension("thread_bytes", "a thread moves many DRAM bytes (log scale {})", 0.2, 0.5,
              _thread_bytes),
    Dimension("asked_again", "bytes of DRAM are asked for again and again (log scale {})", 0.2, 0.5,
              _asked_again),
    Dimension("at_bound", "it is near the task's bound ({} of the way there from 60 % of it)",
              0.0, 3, lambda profile, launch: 0.0),
)  # fmt: skip

DIMENSIONS = (*_EARLIER, *_LATER)
AT_BOUND = len(DIMENSIONS) - 1
"""Place of the dimension that the task's bound decides: what is not known to be near it is not."""
EARLIER = len(_EARLIER)
"""Dimensions of the layout before this one: they are the first of today's."""
NEAR_BOUND = 0.6
"""Share of the bound from which a program is on its way to where nothing is left to gain."""

WEIGHTS = np.array([dimension.weight for dimension in DIMENSIONS])
"""Of each dimension in a distance."""
_NEUTRAL = np.array([dimension.neutral for dimension in DIMENSIONS])
_SCALES = np.sqrt(WEIGHTS / (WEIGHTS[:EARLIER].sum() + WEIGHTS[AT_BOUND]))
_LATER_UNKNOWN = (
    *(dimension.neutral for dimension in _EARLIER), *[UNKNOWN] * (len(_LATER) - 1), 0.0
)  # fmt: skip
"""An unremarkable kernel of which nothing more is known than `EARLIER` has."""
_STRIKING = 0.05
"""Weighted deviation below which a dimension is not worth words."""


def signature_of(
    profile: Profile, launch: LaunchProfile | None = None, bound_us: float | None = None
) -> Signature:
    """Return the signature of a launch: a value in [0, 1] or `UNKNOWN` for each of `DIMENSIONS`.

    Args:
        profile: of the whole program.
        launch: one of its launches; by default the dominant one.
        bound_us: what no kernel of the task can be faster than, where that is known.
    """
    seen = launch or profile.dominant
    values = [_clamped(dimension.measure(profile, seen)) for dimension in DIMENSIONS]
    if bound_us is not None:
        reached = bound_us / profile.microseconds
        values[AT_BOUND] = _clamped((reached - NEAR_BOUND) / (1.0 - NEAR_BOUND))
    return Signature(values=tuple(values))


def _clamped(value: float | None) -> float:
    return UNKNOWN if value is None else round(min(max(value, 0.0), 1.0), 6)


def bottlenecks_of(
    profile: Profile, launch: LaunchProfile | None = None
) -> tuple[Bottleneck, Bottleneck | None]:
    """Return a launch's bottleneck and the second: a tie, its next time term, or by counters.

    Args:
        profile: of the whole program.
        launch: one of its launches; by default the dominant one.
    """
    launch = launch or profile.dominant
    if launch.bottleneck_ties:
        return launch.bottleneck, launch.bottleneck_ties[0]
    if not launch.terms:
        return launch.bottleneck, second_of(launch.metrics, launch.bottleneck)
    others = sorted(
        (name for name in launch.terms if name in BOTTLENECKS and name != launch.bottleneck),
        key=lambda name: (-launch.terms[name], name),
    )
    second: Any = others[0] if others and launch.terms[others[0]] > 0 else None
    return launch.bottleneck, second


def centroid_of(features: Mapping[str, float], *, alone: bool = False) -> tuple[float, ...]:
    """Return a state's full values from named ones.

    Args:
        features: values by name of the dimension.
        alone: whether these alone define the state, and all others are unknown.

    Raises:
        ValueError: a name is no dimension, or a value lies outside [0, 1].
    """
    unknown = set(features) - {dimension.name for dimension in DIMENSIONS}
    if unknown or not all(0.0 <= value <= 1.0 for value in features.values()):
        raise ValueError(f"bad signature features {sorted(unknown) or dict(features)}")
    assumed = _LATER_UNKNOWN if not alone else (UNKNOWN,) * len(DIMENSIONS)
    return tuple(
        features.get(dimension.name, value)
        for dimension, value in zip(DIMENSIONS, assumed, strict=True)
    )


def completed(values: Sequence[float]) -> tuple[float, ...]:
    """Return values in today's layout: what the earlier one did not have is unknown.

    Raises:
        ValueError: they are of neither layout.
    """
    if len(values) not in (EARLIER, len(DIMENSIONS)):
        raise ValueError(f"a signature of {len(values)} values")
    return (*values, *_LATER_UNKNOWN[len(values) :])


def mean_of(signatures: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Return the mean of what is known of each dimension."""
    columns = zip(*map(completed, signatures), strict=True)
    known = ([value for value in column if value >= 0.0] for column in columns)
    return tuple(round(sum(each) / len(each), 6) if each else UNKNOWN for each in known)


def named(values: Sequence[float]) -> dict[str, float]:
    """Return what is known of a signature, by name of the dimension."""
    pairs = zip(DIMENSIONS, completed(values), strict=True)
    return {dimension.name: value for dimension, value in pairs if value >= 0.0}


def embed(values: Sequence[float]) -> list[float]:
    """Return a vector for regression: weighted, the unknown at neutral.

    Between signatures of the earlier layout its Euclidean distances are `distance`.
    """
    vector = np.array(completed(values))
    known: list[float] = (np.where(vector < 0.0, _NEUTRAL, vector) * _SCALES).tolist()
    return known


def distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the weighted root mean square difference over what both know, in [0, 1]."""
    return float(distances(first, np.array([completed(second)]))[0])


def distances(values: Sequence[float], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distance to each of many signatures: a row each, in today's layout."""
    here = np.array(completed(values))
    weights = np.where((others >= 0.0) & (here >= 0.0), WEIGHTS, 0.0)
    total = weights.sum(axis=1)
    squares = (weights * (others - here) ** 2).sum(axis=1)
    away: NDArray[np.float64] = np.sqrt(squares / np.where(total > 0.0, total, 1.0))
    return away


def explain(signature: Signature, limit: int = 5) -> list[str]:
    """Return the most striking features in words, the most striking first."""
    known = [
        (dimension, value)
        for dimension, value in zip(DIMENSIONS, completed(signature.values), strict=True)
        if value >= 0.0
    ]
    ranked = sorted(
        known, key=lambda pair: (-abs(pair[1] - pair[0].neutral) * pair[0].weight, pair[0].name)
    )
    return [
        dimension.words.format(f"{value:.0%}")
        for dimension, value in ranked
        if abs(value - dimension.neutral) * dimension.weight > _STRIKING
        and (value > 0.0 or "{}" in dimension.words)
    ][:limit]

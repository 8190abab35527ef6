"""Names the resource that limits a launch from Nsight Compute's counters."""

from __future__ import annotations

from collections.abc import Mapping

from ..records.profiles import Bottleneck

SATURATED = 60.0
"""Percent of its peak from which a unit limits a kernel (as in ncu's own rules)."""
BUSY = 50.0
"""Percent from which a unit is named although waiting may limit the kernel as much."""
TIE = 0.85
"""Another resource is named beside the first from this share of the first's utilisation."""
NEAR = 0.5
"""Another resource comes second from this share of the first's utilisation."""
ATOMIC_SHARE = 0.2
"""Atomics' part of the global traffic from which they are suspected."""
PASS_ON = (40.0, 60.0)
"""DRAM throughput from which, and L2 hit rate up to which, the L2 is taken to pass DRAM's data on.
Writes count as hits, so a kernel that streams one array in and one out shows a rate of 50 %."""

_ELAPSED = "avg.pct_of_peak_sustained_elapsed"
_DRAM = (f"gpu__dram_throughput.{_ELAPSED}", f"dram__throughput.{_ELAPSED}")
_L2 = (f"lts__throughput.{_ELAPSED}",)
_WAVEFRONTS = (f"l1tex__data_pipe_lsu_wavefronts.{_ELAPSED}",)
_LSU_REQUESTS = (f"l1tex__lsuin_requests.{_ELAPSED}", f"sm__inst_executed_pipe_lsu.{_ELAPSED}")
_SHARED_WAVEFRONTS = (
    f"l1tex__data_pipe_lsu_wavefronts_mem_shared.{_ELAPSED}",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
)
_ISSUE = (f"sm__inst_executed.{_ELAPSED}", f"sm__inst_issued.{_ELAPSED}")
_ARITHMETIC = tuple(
    pattern.format(pipe)
    for pipe in ("fma", "fmaheavy", "alu", "xu", "fp64", "fp16", "adu", "uniform")
    for pattern in (
        f"sm__inst_executed_pipe_{{}}.{_ELAPSED}",
        f"sm__pipe_{{}}_cycles_active.{_ELAPSED}",
    )
)
_TENSOR = (
    f"sm__pipe_tensor_cycles_active.{_ELAPSED}",
    f"sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.{_ELAPSED}",
    f"sm__pipe_tensor_op_hmma_cycles_active.{_ELAPSED}",
    f"sm__inst_executed_pipe_tensor.{_ELAPSED}",
)
_STALL = (
    ("smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"),
    ("smsp__pcsamp_warps_issue_stalled_", ""),
)
_NOT_WAITING = ("selected", "not_selected")
_WAITS_FOR_MEMORY = ("drain", "long_scoreboard", "lg_throttle", "membar")
_THROTTLED = ("lg_throttle", "mio_throttle", "tex_throttle", "math_pipe_throttle")


def bottleneck_of(metrics: Mapping[str, float]) -> tuple[Bottleneck, tuple[Bottleneck, ...]]:
    """Return what limits a launch, and the other resources within 15 % of it.

    In this order: a unit at 60 % of its peak or more; atomics, where they are a good part of the
    global traffic and warps wait for memory; the launch of blocks, where many short blocks leave
    the SMs emptier than occupancy allows; a unit between 50 and 60 %, with latency beside it
    unless warps queue for that very unit; else latency.

    Args:
        metrics: Nsight Compute's names, in base units.
    """
    ranked = sorted(utilisation(metrics).items(), key=lambda item: -item[1])
    first, highest = ranked[0]
    near = tuple(name for name, value in ranked[1:] if value >= TIE * highest)
    if highest >= SATURATED:
        return first, near
    if _atomics_dominate(metrics):
        return "atomic", ()
    if _blocks_are_too_short(metrics):
        return "launch", ()
    if highest >= BUSY:
        reasons = stalls(metrics)
        queued = bool(reasons) and max(reasons, key=lambda name: reasons[name]) in _THROTTLED
        return first, near if queued else ("latency", *near)
    return "latency", ()


def second_of(metrics: Mapping[str, float], first: Bottleneck) -> Bottleneck | None:
    """Return what comes after the resource that limits a launch; None where nothing comes near.

    The busiest other unit, from half of the first's utilisation; where none is as busy and warps
    mostly wait for memory, latency.
    """
    busy = utilisation(metrics)
    name = max(busy.keys() - {first}, key=lambda each: (busy[each], each))
    if busy[name] > 0.0 and busy[name] >= NEAR * busy.get(first, BUSY):
        return name
    waiting = stalls(metrics)
    for_memory = sum(waiting.get(reason, 0.0) for reason in _WAITS_FOR_MEMORY)
    return "latency" if first != "latency" and for_memory >= NEAR else None


def utilisation(metrics: Mapping[str, float]) -> dict[Bottleneck, float]:
    """Return the percent of its peak at which each resource runs.

    Counters of the SMs are averages over all SMs; a grid of fewer blocks than SMs is judged by
    the SMs that work.
    """
    blocks, sms = metrics.get("launch__grid_size", 0.0), metrics.get("launch__sm_count", 0.0)
    scale = sms / blocks if 0 < blocks < sms else 1.0
    wavefronts, requests = _highest(metrics, _WAVEFRONTS), _highest(metrics, _LSU_REQUESTS)
    dram, l2 = _highest(metrics, _DRAM), _highest(metrics, _L2)
    if dram >= PASS_ON[0] and _passes_on(metrics, dram, l2):
        dram = max(dram, l2)  # both are the load on one path
    found: dict[Bottleneck, float] = {
        "dram": dram,
        "l2": l2,
        _lsu_name(metrics, wavefronts): scale * max(wavefronts, requests),
        "compute": scale * _compute(metrics, requests),
        "tensor": scale * _highest(metrics, _TENSOR),
    }
    return {name: min(value, 100.0) for name, value in found.items()}


def stalls(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return, for each reason that a warp does not issue, its share of all reasons (0 to 1).

    From the counters of WarpStateStats, else from the samples of SourceCounters; empty where
    neither was collected. Ready warps (selected, not selected) are no stall and not counted.
    """
    for prefix, suffix in _STALL:
        counts = {
            name[len(prefix) : len(name) - len(suffix)]: value
            for name, value in metrics.items()
            if name.startswith(prefix) and name.endswith(suffix) and "not_issued" not in name
        }
        waiting = {name: count for name, count in counts.items() if name not in _NOT_WAITING}
        total = sum(waiting.values())
        if total > 0:
            return {name: count / total for name, count in waiting.items()}
    return {}


def _highest(metrics: Mapping[str, float], names: tuple[str, ...]) -> float:
    return max((metrics[name] for name in names if name in metrics), default=0.0)


def _lsu_name(metrics: Mapping[str, float], wavefronts: float) -> Bottleneck:
    shared = _highest(metrics, _SHARED_WAVEFRONTS)
    return "shared_memory" if shared > wavefronts / 2 else "lsu"


def _passes_on(metrics: Mapping[str, float], dram: float, l2: float) -> bool:
    hit_rate = metrics.get("lts__t_sector_hit_rate.pct")
    # The smallest sets do not count hits: then DRAM not far behind the L2 has to do.
    return dram >= 0.6 * l2 if hit_rate is None else hit_rate <= PASS_ON[1]


def _compute(metrics: Mapping[str, float], lsu_requests: float) -> float:
    busiest = max(_highest(metrics, _ISSUE), _highest(metrics, _ARITHMETIC))
    if not any(name in metrics for name in _ISSUE):
        # The smallest sets lack the issue rate. SM throughput is the maximum over issue, the
        # pipes and the requests to the LSU: above the LSU's, it is the issue rate or a pipe.
        overall = metrics.get(f"sm__throughput.{_ELAPSED}", 0.0)
        if overall > 1.01 * lsu_requests and overall > 1.01 * _highest(metrics, _TENSOR):
            busiest = max(busiest, overall)
    return busiest


def _atomics_dominate(metrics: Mapping[str, float]) -> bool:
    name = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
    for what in ("sectors", "requests"):  # the smaller sets count requests only
        counts = {
            kind: metrics.get(name.format(what, kind), 0.0) for kind in ("ld", "st", "atom", "red")
        }
        atomic = counts["atom"] + counts["red"]
        if atomic:
            break
    else:
        return False
    if atomic / sum(counts.values()) < ATOMIC_SHARE:
        return False
    reasons = stalls(metrics)
    return not reasons or max(reasons, key=lambda name: reasons[name]) in _WAITS_FOR_MEMORY


def _blocks_are_too_short(metrics: Mapping[str, float]) -> bool:
    possible = metrics.get("sm__maximum_warps_per_active_cycle_pct", 0.0)
    reached = metrics.get("sm__warps_active.avg.pct_of_peak_sustained_active", possible)
    many_waves = metrics.get("launch__waves_per_multiprocessor", 0.0) >= 4.0
    return many_waves and possible > 0 and reached / possible < 0.3

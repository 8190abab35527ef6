"""What one launch's metrics say of a kernel, each a number about [0, 1], None where not known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ....harness.gpus import known_gpu
from ....harness.nsight.bottleneck import stalls
from ....harness.records.profiles import LaunchProfile, Profile

Metrics = Mapping[str, float]
Measure = Callable[[Profile, LaunchProfile], float | None]
ELAPSED = "avg.pct_of_peak_sustained_elapsed"
_LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
_WAVES = "launch__waves_per_multiprocessor"


def _first(metrics: Metrics, *names: str) -> float | None:
    """Return the first metric reported among alternative names."""
    return next((float(metrics[name]) for name in names if name in metrics), None)


def percent(*names: str) -> Measure:
    """The first metric in percent that is there, as a share."""

    def measure(_: Profile, launch: LaunchProfile) -> float | None:
        value = _first(launch.metrics, *names)
        return None if value is None else value / 100.0

    return measure


def pipe(*pipes: str) -> Measure:
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


def sectors_per_request(direction: str) -> Measure:
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


def uncoalesced(profile: Profile, launch: LaunchProfile) -> float | None:
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
            per_request = 32.0 * (sectors_per_request(direction)(profile, launch) or 0.0)
            used = 128.0 / per_request if per_request > 16.0 else 32.0
        # Lanes that read the same word use more bytes than were fetched.
        wasted += sectors * max(0.0, 1.0 - used / 32.0)
        weight += sectors
    return wasted / weight if weight else 0.0


def bank_conflicts(_: Profile, launch: LaunchProfile) -> float | None:
    """Share of the shared-memory wavefronts that a conflict-free layout would not need."""
    total = launch.metrics.get("memory_l1_wavefronts_shared")
    ideal = launch.metrics.get("memory_l1_wavefronts_shared_ideal", total)
    if total is None or ideal is None:
        return None
    return 1.0 - ideal / total if total else 0.0


def shared_share(_: Profile, launch: LaunchProfile) -> float | None:
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


def spills(_: Profile, launch: LaunchProfile) -> float | None:
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


def atomics(_: Profile, launch: LaunchProfile) -> float | None:
    """Sectors of global atomics and reductions over all global sectors."""
    if not _counts_global(launch.metrics):
        return None
    atomic = _sectors(launch.metrics, "global_op_atom", "global_op_red")
    usual = _sectors(launch.metrics, "global_op_ld", "global_op_st")
    return atomic / (atomic + usual) if atomic else 0.0


def idle_lanes(_: Profile, launch: LaunchProfile) -> float | None:
    """Lanes idle in an average warp instruction (predicated ones do not count as idle)."""
    active = _first(
        launch.metrics,
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    )
    return 1.0 - active / 32.0 if active else None


def limiter(kind: str) -> Measure:
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


def unfilled(_: Profile, launch: LaunchProfile) -> float | None:
    """Share of the blocks that the GPU could hold which the grid lacks: 0 from a full wave on."""
    waves = launch.metrics.get(_WAVES)
    return None if waves is None else 1.0 - min(waves, 1.0)


def idle_sms(profile: Profile, launch: LaunchProfile) -> float | None:
    """Share of the SMs that no block is left for; of a GPU that is not known, None."""
    each = blocks_per_sm(profile, launch)
    return None if each is None else 1.0 - min(each, 1.0)


def blocks_per_sm(profile: Profile, launch: LaunchProfile) -> float | None:
    """Return a launch's blocks over the GPU's SMs; None where the GPU is not known."""
    gpu = known_gpu(profile.gpu)
    return None if gpu is None else math.prod(launch.grid) / gpu.sms


def many_waves(_: Profile, launch: LaunchProfile) -> float | None:
    """log2 of the waves over 10: 1 from about a thousand waves on."""
    waves = launch.metrics.get(_WAVES)
    return None if waves is None else math.log2(1.0 + waves) / 10.0


def compute_balance(profile: Profile, launch: LaunchProfile) -> float | None:
    """Arithmetic intensity against the ridge: 0.5 on it, towards 1 above, towards 0 below.

    The ratio of the two utilisations is the ratio of intensity to ridge, whatever the GPU.
    """
    pipes = (pipe(name)(profile, launch) for name in ("fma", "fp64", "fp16", "tensor"))
    known = [busy for busy in pipes if busy is not None]
    memory = dram(profile, launch)
    if not known or memory is None:
        return None
    arithmetic = max(known)
    return arithmetic / (arithmetic + memory) if arithmetic + memory else 0.0


dram = percent(
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)


def duration(profile: Profile, _: LaunchProfile) -> float:
    """log10 of the program's microseconds over 5: 0 at 1 us, 1 at 100 ms."""
    return math.log10(max(profile.microseconds, 1.0)) / 5.0


def more_launches(profile: Profile, _: LaunchProfile) -> float:
    """1 - 1/launches: 0 for one kernel, 0.5 for two."""
    return 1.0 - 1.0 / len(profile.launches)


def other_launches(profile: Profile, launch: LaunchProfile) -> float:
    """Share of the time that is not of the launch's kernel (Amdahl)."""
    total = profile.microseconds
    own = sum(each.microseconds for each in profile.launches if each.kernel == launch.kernel)
    return 1.0 - own / total if total > 0 else 0.0


def is_bottleneck(name: str) -> Measure:
    """1 where it holds the launch back first."""
    return lambda _, launch: 1.0 if launch.bottleneck == name else 0.0


def stall(*reasons: str) -> Measure:
    """Share of these reasons in why warps do not issue; only a GPU's own profiler tells."""

    def measure(_: Profile, launch: LaunchProfile) -> float | None:
        found = stalls(launch.metrics)
        return sum(found.get(reason, 0.0) for reason in reasons) if found else None

    return measure


def registers(_: Profile, launch: LaunchProfile) -> float | None:
    """Registers of a thread, over the 255 that it can have."""
    count = launch.metrics.get("launch__registers_per_thread")
    return None if count is None else count / 255.0


def shared_bytes(_: Profile, launch: LaunchProfile) -> float | None:
    """Shared memory of a block, over 227 KiB."""
    static = launch.metrics.get("launch__shared_mem_per_block_static")
    return None if static is None else (static + launch.dynamic_shared_bytes) / (227 * 1024)


def threads(_: Profile, launch: LaunchProfile) -> float:
    """log2 of the threads of a block over 10: 1 for 1024."""
    return math.log2(math.prod(launch.block)) / 10.0


def tail(_: Profile, launch: LaunchProfile) -> float | None:
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


def written(_: Profile, launch: LaunchProfile) -> float | None:
    """Writes among the traffic to device memory."""
    moved = _dram_bytes(launch)
    return moved[1] / sum(moved) if moved and sum(moved) else None


def thread_bytes(_: Profile, launch: LaunchProfile) -> float | None:
    """log2 of the bytes of device memory for each thread over 16: 0.25 for 4 of them."""
    moved = _dram_bytes(launch)
    threads = math.prod(launch.grid) * math.prod(launch.block)
    return math.log2(1.0 + sum(moved) / threads) / 16.0 if moved else None


def asked_again(_: Profile, launch: LaunchProfile) -> float | None:
    """log2 of the bytes of global accesses for one of device memory over 8."""
    moved = _dram_bytes(launch)
    if not moved or not sum(moved) or not _counts_global(launch.metrics):
        return None
    asked = 32.0 * _sectors(launch.metrics, "global_op_ld", "global_op_st")
    return math.log2(1.0 + asked / sum(moved)) / 8.0

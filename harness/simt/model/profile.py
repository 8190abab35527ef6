"""Puts counters and the time model's estimate into Nsight Compute's words: a LaunchProfile."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ...gpus import Gpu
from ...occupancy import Occupancy, occupancy
from ...records.builds import KernelResources
from ...records.profiles import ELAPSED_CYCLES, LaunchProfile, LineProfile
from ...vetting.symbols import readable
from ..counters import Counts, LaunchCounters
from .advice import advice
from .constants import constants_of
from .demand import demand, l1_hit_rate
from .time_model import Demand, Estimate, estimate

HOT_LINES = 8
_PIPES = {
    "fma": ("fma", "fma_heavy"), "alu": ("alu",), "xu": ("xu",), "lsu": ("lsu",),
    "fp64": ("fp64",), "fp16": ("fp16",), "tensor": ("tensor",),
}  # fmt: skip


def describe_launch(
    gpu: Gpu,
    resources: KernelResources | None,
    launch: LaunchCounters,
    *,
    l2_left_dirty: bool = False,
) -> tuple[LaunchProfile, tuple[float, ...]]:
    """Return the profile of a launch and its time by each sample of blocks, in microseconds.

    `l2_left_dirty` as for estimate().
    """
    demands = [demand(gpu, launch, counts) for counts in launch.samples]
    estimates = [estimate(gpu, each, l2_left_dirty=l2_left_dirty) for each in demands]
    times = tuple(each.microseconds for each in estimates)
    counts, needs, found = launch.samples[0], demands[0], estimates[0]
    microseconds = float(median(times))
    registers = max(16, resources.registers) if resources else 32
    static_shared = resources.static_shared_bytes if resources else 0
    held = occupancy(
        gpu.limits, launch.threads, registers, static_shared + launch.dynamic_shared_bytes
    )
    metrics = _time_metrics(gpu, launch, needs, found, microseconds)
    metrics |= _memory_metrics(gpu, launch, counts, needs, microseconds)
    metrics |= _launch_metrics(gpu, launch, held, registers, static_shared)
    metrics |= _instruction_metrics(launch, counts, needs, found)
    metrics |= _spill_metrics(resources, counts)
    profile = LaunchProfile(
        kernel=readable(launch.kernel),
        grid=launch.grid,
        block=launch.block,
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        microseconds=microseconds,
        metrics={name: float(value) for name, value in metrics.items()},
        terms={name: round(value, 6) for name, value in found.terms.items()},
        bottleneck=found.bottleneck,
        bottleneck_ties=found.ties,
        lines=_hot_lines(counts),
        advice=advice(gpu, launch, counts, found, held, resources),
    )
    return profile, times


def _time_metrics(
    gpu: Gpu, launch: LaunchCounters, needs: Demand, found: Estimate, microseconds: float
) -> dict[str, float]:
    clocks = microseconds * gpu.clock_ghz * 1e3
    pipe_percent = {name: 100 * value / clocks for name, value in found.pipe_clocks.items()}
    share = {name: 100 * value / microseconds for name, value in found.terms.items()}
    lsu = share.get("lsu", share.get("shared_memory", 0.0))
    metrics = {
        "gpu__time_duration.sum": microseconds * 1e3,
        ELAPSED_CYCLES: clocks,
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": max([*pipe_percent.values(), lsu]),
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": share["dram"]
        * constants_of(gpu).dram_efficiency,
        "lts__throughput.avg.pct_of_peak_sustained_elapsed": share["l2"],
        "l1tex__throughput.avg.pct_of_peak_sustained_elapsed": lsu,
        "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_elapsed": lsu
        * needs.pipes.get("lsu", 0.0)
        / max(needs.global_wavefronts + needs.shared_wavefronts, needs.pipes.get("lsu", 0.0), 1.0),
    }
    for name in ("fma", "alu", "xu", "fp64", "fp16", "tensor"):
        key = f"sm__inst_executed_pipe_{name}.avg.pct_of_peak_sustained_elapsed"
        metrics[key] = pipe_percent[name]
    return {name: min(100.0, value) if ".pct_" in name else value
            for name, value in metrics.items()}  # fmt: skip


def _memory_metrics(
    gpu: Gpu, launch: LaunchCounters, counts: Counts, needs: Demand, microseconds: float
) -> dict[str, float]:
    def ratio(part: float, whole: float) -> float:
        return part / whole if whole else 0.0

    base = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
    average = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{}.ratio"
    used = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"
    return {
        base.format("requests", "ld"): counts.load_requests,
        base.format("sectors", "ld"): counts.load_sectors,
        base.format("requests", "st"): counts.store_requests,
        base.format("sectors", "st"): counts.store_sectors,
        base.format("sectors", "red"): counts.atomic_lanes,
        used.format("ld"): ratio(counts.load_bytes, counts.load_sectors),
        used.format("st"): ratio(counts.store_bytes, counts.store_sectors),
        average.format("ld"): ratio(counts.load_sectors, counts.load_requests),
        average.format("st"): ratio(counts.store_sectors, counts.store_requests),
        "l1tex__t_sector_hit_rate.pct": 100 * l1_hit_rate(launch),
        "memory_l1_wavefronts_shared": counts.shared_wavefronts,
        "memory_l1_wavefronts_shared_ideal": counts.shared_wavefronts_ideal,
        "lts__t_sectors.sum": needs.l2_sectors,
        "dram__bytes_read.sum": needs.dram_read_bytes,
        "dram__bytes_write.sum": needs.dram_write_bytes,
        "dram__bytes.sum.per_second": (needs.dram_read_bytes + needs.dram_write_bytes)
        / (microseconds * 1e-6),
    }


def _launch_metrics(
    gpu: Gpu, launch: LaunchCounters, held: Occupancy, registers: int, static_shared: int
) -> dict[str, float]:
    metrics: dict[str, float] = {
        "launch__registers_per_thread": registers,
        "launch__shared_mem_per_block_static": static_shared,
        "launch__shared_mem_per_block_dynamic": launch.dynamic_shared_bytes,
        "launch__grid_size": launch.blocks,
        "launch__block_size": launch.threads,
        "launch__waves_per_multiprocessor": launch.blocks / (gpu.sms * max(1, held.blocks)),
        "sm__maximum_warps_per_active_cycle_pct": held.percent,
    }
    for name, blocks in held.by_limit.items():
        metrics[f"launch__occupancy_limit_{name}"] = blocks
    return metrics


def _instruction_metrics(
    launch: LaunchCounters, counts: Counts, needs: Demand, found: Estimate
) -> dict[str, float]:
    metrics = {
        "smsp__inst_executed.sum": needs.instructions,
        "smsp__thread_inst_executed_per_inst_executed.ratio": counts.thread_instructions
        / max(1.0, counts.warp_instructions),
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": counts.ffma,
        "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": counts.fadd,
        "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum": counts.fmul,
        "smsp__inst_executed_op_branch.sum": counts.branches,
    }
    for name, parts in _PIPES.items():
        metrics[f"sm__inst_executed_pipe_{name}.sum"] = sum(
            counts.pipes.get(part, 0.0) for part in parts
        )
    return metrics


def _spill_metrics(resources: KernelResources | None, counts: Counts) -> dict[str, float]:
    # Spills are static facts of ptxas; local traffic of PTX is arrays that stay in memory.
    return {
        "ptxas__spill_store_bytes": resources.spill_store_bytes if resources else 0,
        "ptxas__spill_load_bytes": resources.spill_load_bytes if resources else 0,
        "l1tex__t_sectors_pipe_lsu_mem_local.sum": counts.local_sectors,
    }


def _hot_lines(counts: Counts) -> tuple[LineProfile, ...]:
    """Return the lines with most of any counter, each weighed by its share of the whole launch."""
    totals = [max(1.0, sum(values[i] for values in counts.lines.values())) for i in range(3)]

    def weight(item: tuple[int, Sequence[float]]) -> float:
        return max(value / total for value, total in zip(item[1], totals, strict=True))

    known = [item for item in counts.lines.items() if item[0] > 0]
    hottest = sorted(known, key=lambda item: (-weight(item), item[0]))[:HOT_LINES]
    return tuple(
        LineProfile(line=line, instructions=values[0], sectors=values[1],
                    shared_wavefronts=values[2])
        for line, values in hottest
    )  # fmt: skip

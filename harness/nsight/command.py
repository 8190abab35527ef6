"""Command lines of Nsight Compute: what to collect of which launches, and how to read it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Page = Literal["raw", "details", "source"]
Replay = Literal["kernel", "application"]

_ELAPSED = "avg.pct_of_peak_sustained_elapsed"
_GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"


@dataclass(frozen=True)
class Collection:
    """What to collect of a launch. Every further counter may cost one more replay of the kernel."""

    name: str
    set: str = ""
    """One of ncu's own sets (basic, detailed, full); empty for none."""
    sections: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    runs: float = 0.0
    """About how many times a launch's own time it takes: its passes, the instrumented ones as many
    times as they are slower. Measured by benchmarks/profiling/profile_cost.py on an H200."""

    @property
    def has_lines(self) -> bool:
        """Whether it holds counters of source lines."""
        return bool({self.set, *self.sections} & {"detailed", "full", "SourceCounters"})


DEFAULT_SECTIONS: tuple[str, ...] = (
    "SpeedOfLight",  # time, cycles, the throughput of every unit and of every execution pipe
    "LaunchStats",  # grid, block, registers, shared memory, waves
    "Occupancy",  # its limits, and theoretical against achieved
    "SourceCounters",  # counters and stall samples of each line; rules on uncoalesced accesses
)
DEFAULT_METRICS: tuple[str, ...] = (
    # Asked for by the signature of a state, whatever a section holds.
    *(_GLOBAL.format("requests", kind) for kind in ("ld", "st")),
    *(_GLOBAL.format("sectors", kind) for kind in ("ld", "st", "atom", "red")),
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    f"l1tex__throughput.{_ELAPSED}",  # SpeedOfLight has it relative to active cycles only
    "l1tex__t_sector_hit_rate.pct",
    "lts__t_sector_hit_rate.pct",
    "memory_l1_wavefronts_shared",
    "memory_l1_wavefronts_shared_ideal",
    "memory_l2_theoretical_sectors_global",
    "memory_l2_theoretical_sectors_global_ideal",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    # Of elapsed and of active cycles: it takes the larger, and both come from the same counters.
    *(
        f"sm__{counter}.avg.pct_of_peak_sustained_{cycles}"
        for counter in (
            "inst_executed_pipe_fma", "inst_executed_pipe_alu", "inst_executed_pipe_xu",
            "inst_executed_pipe_lsu", "inst_executed_pipe_fma_type_fp16",
            "pipe_fma_cycles_active", "pipe_fp64_cycles_active", "pipe_tensor_cycles_active",
        )
        for cycles in ("elapsed", "active")
    ),
    # Asked for by the rule that names the bottleneck (bottleneck.py).
    f"sm__inst_executed.{_ELAPSED}",
    f"l1tex__data_pipe_lsu_wavefronts.{_ELAPSED}",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
    f"l1tex__lsuin_requests.{_ELAPSED}",
    # Shown to people and models: the size of the traffic, and the paper's measure of time.
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "gpu__time_duration.sum",
    "gpc__cycles_elapsed.max",
)  # fmt: skip
DEFAULT = Collection(
    "default", sections=DEFAULT_SECTIONS, metrics=DEFAULT_METRICS, runs=400.0
)
"""What signature, bottleneck and prompts read. Left out of `full` for their passes: the roofline
charts, WarpStateStats and SchedulerStats (SourceCounters' stall samples say as much),
MemoryWorkloadAnalysis (its few counters needed are asked for by name), PmSampling,
InstructionStats, WorkloadDistribution. What each costs is measured by
benchmarks/profiling/ncu_sections.py."""
COUNTED = Collection(
    "counted",
    sections=tuple(name for name in DEFAULT_SECTIONS if name != "SourceCounters"),
    metrics=(
        *(name for name in DEFAULT_METRICS if not name.startswith("memory_")),
        "group:smsp__pcsamp_warp_stall_reasons",
    ),
    runs=10.0,
)  # fmt: skip
"""DEFAULT without what is counted by instrumented code, which makes a launch a hundred times slower
and more: no counters of lines, no ideal of sectors and wavefronts. Stalls are sampled."""
TIMED = Collection(
    "timed",
    sections=("LaunchStats",),
    metrics=(
        "gpu__time_duration.sum", "gpc__cycles_elapsed.max", "dram__bytes_read.sum",
        "dram__bytes_write.sum",
    ),
    runs=1.0,
)  # fmt: skip
"""What one pass counts, so that nothing is saved, restored and run again: for every launch of a
program that has many."""
BASIC = Collection("basic", set="basic", runs=5.0)
DETAILED = Collection("detailed", set="detailed")
"""Also the way out where a GPU does not know one of DEFAULT_METRICS."""
FULL = Collection("full", set="full")
LAUNCHES_SECONDS = 3.0
"""What running launches for a profile may take, as far as a smaller collection helps."""


def affordable(microseconds: float) -> Collection:
    """Return the largest collection for which launches of this time together do not take long."""
    for collection in (DEFAULT, COUNTED):
        if collection.runs * microseconds / 1e6 <= LAUNCHES_SECONDS:
            return collection
    return BASIC


def profile_command(
    ncu: str | Path,
    target: Sequence[str],
    report: Path,
    *,
    collection: Collection = DEFAULT,
    kernels: str | None = None,
    launch_skip: int = 0,
    launch_count: int | None = None,
    from_start: bool = True,
    nvtx_include: str | None = None,
    replay: Replay = "kernel",
    cache_control: Literal["all", "none"] = "all",
    import_source: bool = True,
) -> list[str]:
    """Return the command that profiles a target program into a report.

    The clocks are left alone (`--clock-control none`): locking them needs rights that containers
    lack, and a time at base clock is not the time of a run.

    Args:
        ncu: the profiler.
        target: the program and its arguments.
        report: where to write; its name should end in `.ncu-rep`. Overwritten.
        collection: what to collect.
        kernels: regular expression that a kernel's name must match; None profiles every kernel.
        launch_skip: matching launches to pass over first.
        launch_count: matching launches to profile; None for all.
        from_start: False waits for cudaProfilerStart and stops at cudaProfilerStop.
        nvtx_include: profile only inside this NVTX range (ncu's own syntax).
        replay: repeat each kernel, or the whole program, for every pass.
        cache_control: flush the GPU's caches before every pass, or leave them as they are.
        import_source: put the source files into the report, so that it can be read elsewhere.
    """
    command = [str(ncu), "--export", str(report), "--force-overwrite"]
    command += ["--clock-control", "none", "--cache-control", cache_control]
    command += ["--replay-mode", replay, "--target-processes", "all"]
    command += ["--import-source", "yes" if import_source else "no"]
    if collection.set:
        command += ["--set", collection.set]
    for section in collection.sections:
        command += ["--section", section]
    if collection.metrics:
        command += ["--metrics", ",".join(collection.metrics)]
    if kernels is not None:
        command += ["--kernel-name", f"regex:{kernels}"]
    if launch_skip:
        command += ["--launch-skip", str(launch_skip)]
    if launch_count is not None:
        command += ["--launch-count", str(launch_count)]
    if not from_start:
        command += ["--profile-from-start", "off"]
    if nvtx_include is not None:
        command += ["--nvtx", "--nvtx-include", nvtx_include]
    return [*command, *target]


def import_command(ncu: str | Path, report: Path, page: Page) -> list[str]:
    """Return the command that prints one page of a report as CSV, in base units."""
    command = [str(ncu), "--import", str(report), "--csv", "--page", page]
    if page == "source":
        return [*command, "--print-source", "cuda,sass"]
    return [*command, "--print-units", "base"]

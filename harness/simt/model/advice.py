"""Rules over the counters of a launch that say, in words, what would help."""

from __future__ import annotations

from collections.abc import Iterator

from ...gpus import Gpu
from ...occupancy import Occupancy
from ...records.builds import KernelResources
from ..counters import Counts, LaunchCounters
from .constants import constants_of
from .demand import l1_hit_rate
from .time_model import Estimate


def advice(
    gpu: Gpu,
    launch: LaunchCounters,
    counts: Counts,
    found: Estimate,
    held: Occupancy,
    resources: KernelResources | None,
) -> tuple[str, ...]:
    """Return one sentence for each rule that fires, the numbers named."""
    named: set[str] = {found.bottleneck, *found.ties}
    return tuple(
        [
            *_coalescing(counts),
            *_shared_memory(counts),
            *_constants(gpu, launch, counts, named),
            *_reuse(launch, counts, named),
            *_width(launch, counts, named),
            *_launch_shape(gpu, launch, held, named),
            *_series(gpu, launch, counts, found, named),
            *_instructions(counts, named),
            *_registers(resources),
            *_atomics(counts, named),
        ]
    )


def _coalescing(counts: Counts) -> Iterator[str]:
    for what, requests, sectors, wanted in (
        ("load", counts.load_requests, counts.load_sectors, counts.load_bytes),
        ("store", counts.store_requests, counts.store_sectors, counts.store_bytes),
    ):
        if requests and sectors * 32 > 2 * wanted and sectors / requests > 4:
            line = _hottest(counts, 1)
            yield (
                f"Uncoalesced global {what}s{line}: {sectors / requests:.1f} sectors a request, "
                f"{100 * wanted / (sectors * 32):.0f} % of the bytes moved are used; let "
                "neighbouring threads touch neighbouring addresses."
            )


def _shared_memory(counts: Counts) -> Iterator[str]:
    ideal = counts.shared_wavefronts_ideal
    if ideal and counts.shared_wavefronts > 1.3 * ideal:
        yield (
            f"Shared-memory bank conflicts{_hottest(counts, 2)}: "
            f"{counts.shared_wavefronts / ideal:.1f} times the wavefronts needed; pad or swizzle "
            "the array."
        )


def _constants(
    gpu: Gpu, launch: LaunchCounters, counts: Counts, named: set[str]
) -> Iterator[str]:
    if not counts.constant_requests:
        return
    words = counts.constant_words / counts.constant_requests
    if words > 2 and named & {"compute", "latency"}:
        yield (
            f"Divergent reads of constant memory: {words:.1f} words a read, served one by one; "
            "keep a table that lanes index each for itself in shared memory."
        )
    missed = constants_of(gpu).missed_constants(launch.constant_bytes)
    if missed > 0.05 and "compute" in named:
        yield (
            f"{launch.constant_bytes:.0f} bytes of constant memory are read by index: its cache "
            f"lacks {100 * missed:.0f} % of them; keep the table in shared or global memory."
        )


def _reuse(launch: LaunchCounters, counts: Counts, named: set[str]) -> Iterator[str]:
    repeats = counts.load_sectors * 32 / launch.read_footprint if launch.read_footprint else 0.0
    if repeats > 4 and named & {"lsu", "l2", "dram"}:
        yield (
            f"Each byte is loaded {repeats:.0f} times from global memory "
            f"({100 * l1_hit_rate(launch):.0f} % L1 hits{_hottest(counts, 1)}): keep it in shared "
            "memory or registers and reuse it."
        )
    fma = counts.ffma / 32
    if fma and counts.shared_wavefronts > fma and named & {"shared_memory", "lsu"}:
        yield (
            f"{counts.shared_wavefronts / fma:.1f} shared-memory wavefronts for each "
            "multiply-add: compute several outputs per thread from registers."
        )


def _width(launch: LaunchCounters, counts: Counts, named: set[str]) -> Iterator[str]:
    requests = counts.load_requests + counts.store_requests
    if (
        requests
        and counts.narrow_requests > 0.5 * requests
        and named & {"dram", "l2", "lsu", "latency", "launch", "compute"}
    ):
        yield (
            f"{100 * counts.narrow_requests / requests:.0f} % of global accesses move 4 bytes a "
            "thread or fewer: use 16-byte vectors (float4) for fewer instructions and more bytes "
            "in flight."
        )


def _launch_shape(
    gpu: Gpu, launch: LaunchCounters, held: Occupancy, named: set[str]
) -> Iterator[str]:
    if launch.threads < 64 and launch.blocks > gpu.sms:
        yield (
            f"Blocks of {launch.threads} threads: at most {held.warps} of {gpu.limits.warps} warps "
            f"fit on an SM and {launch.blocks} blocks must be launched; use 128 to 256 threads."
        )
    if launch.blocks < gpu.sms:
        yield (f"Only {launch.blocks} blocks for {gpu.sms} SMs: split the work into more blocks.")
    elif launch.blocks < gpu.sms * held.blocks and named & {"latency", "dram"}:
        reached = held.percent * launch.blocks / (gpu.sms * held.blocks)
        if reached < 50:
            yield (
                f"{launch.blocks / gpu.sms:.1f} blocks for each SM, which could hold "
                f"{held.blocks}: the grid keeps occupancy at {reached:.0f} %; more or larger "
                "blocks, or more work in flight in each."
            )
    elif held.percent < 50 and named & {"latency", "dram"}:
        yield (
            f"Occupancy is limited to {held.percent:.0f} % by {' and '.join(held.limiters)}: "
            f"{held.blocks} blocks per SM."
        )
    if "launch" in named:
        yield (
            f"Launching {launch.blocks} blocks takes about as long as their work, or longer: give "
            "each thread more work."
        )


def _series(
    gpu: Gpu, launch: LaunchCounters, counts: Counts, found: Estimate, named: set[str]
) -> Iterator[str]:
    """Say what waits for one another: phases of a block, its slowest warp, the longest block."""
    if found.turns_microseconds > 0.05 * found.microseconds:
        yield (
            f"Blocks work and wait in turns ({launch.resident_blocks} to an SM, "
            f"{counts.barriers_per_warp:.0f} barriers): {found.turns_microseconds:.1f} of "
            f"{found.microseconds:.1f} us; more blocks to an SM or asynchronous copies help."
        )
    waits = launch.path_waits / (gpu.clock_ghz * 1e3)
    if waits > 0.05 * found.microseconds and "latency" in named:
        yield (
            f"Blocks wait for each other {waits:.1f} us in all until they see what others stored: "
            "wait less often, or launch another kernel instead."
        )
    if launch.path_blocks > 1.5 and "latency" in named:
        yield (
            f"Work of {launch.path_blocks:.1f} times a block's is done in series, in blocks that "
            "wait for others or in the one that ends last: spread it."
        )
    if launch.slowest_warp > 1.5 and "latency" in named:
        yield (
            f"A block waits {launch.slowest_warp:.1f} times as long as its average warp works: "
            "spread over the warps what few of them do."
        )
    if launch.longest_block > 1.5 and "latency" in named:
        yield (
            f"The longest block does {launch.longest_block:.1f} times the work of an average one: "
            "split it."
        )


def _instructions(counts: Counts, named: set[str]) -> Iterator[str]:
    if counts.warp_instructions:
        active = counts.thread_instructions / counts.warp_instructions
        if active < 24:
            yield f"Divergence: {active:.1f} of 32 threads active per instruction on average."
    xu = counts.pipes.get("xu", 0.0)
    total = sum(counts.pipes.values())
    if "compute" in named and total and xu > 0.1 * total:
        yield (
            "The special-function pipe is busy: fewer divisions, roots and exponentials, or fast "
            "intrinsics where the tolerance allows."
        )


def _registers(resources: KernelResources | None) -> Iterator[str]:
    if resources and resources.spill_load_bytes + resources.spill_store_bytes:
        yield (
            f"Registers spill ({resources.spill_store_bytes} bytes stored, "
            f"{resources.spill_load_bytes} loaded per thread): use smaller tiles."
        )


def _atomics(counts: Counts, named: set[str]) -> Iterator[str]:
    if "atomic" in named:
        yield (
            f"{counts.hottest_atomic:.0f} atomics hit one address: reduce within the warp and the "
            "block first."
        )


def _hottest(counts: Counts, column: int) -> str:
    """Return ` at line N` of the line with most of one counter."""
    if not counts.lines:
        return ""
    line = max(counts.lines, key=lambda number: counts.lines[number][column])
    return f" at line {line}" if counts.lines[line][column] and line else ""

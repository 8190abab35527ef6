"""Counts a launch whose blocks may wait for each other: all of them, in one run."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from ...gpus import Gpu
from ..counters import Counts, LaunchCounters
from ..model.constants import constants_of
from ..occupancy import Occupancy
from ..run.block_runs import BlockRuns
from ..run.candidate import KernelLaunch
from ..sass.listing import MachineCode
from ..sass.sums import KernelCode
from .footprint import filled_bytes, footprint_of
from .instruction_counts import count_by_kind
from .memory_traffic import IN_STEP, constant_waits
from .slowest_warp import slowest_path
from .warp_chain import chain_clocks
from .written import Atomics, note_atomics, written_of

_STRONG = frozenset(("volatile", "relaxed", "acquire"))


def whole_launch(
    gpu: Gpu,
    asked: KernelLaunch,
    held: Occupancy,
    budget: int,
    code: MachineCode | None,
    outputs: Mapping[int, int],
    atomics: Atomics | None,
) -> LaunchCounters:
    """Return the counters of all blocks in one run; the arguments are `sample_launch`'s.

    No L1 is replayed.

    Raises:
        LaunchFailed: a block did something that ends a launch, or ran too long.
    """
    launch = asked.launch
    blocks = launch.block_count
    runner = BlockRuns(asked, budget)
    result = runner.run(range(blocks), random=True)
    footprint = footprint_of(
        gpu, asked.memory, runner.fresh, runner.uses, blocks, held, whole_range=True
    )
    constants = constants_of(gpu)
    waits = constant_waits(gpu, result.counters)
    # Looks at what others write, which lies in the L2, take nothing from the wait of other loads.
    plain = sum(
        float(result.counters["sectors"][each.index]) for each in launch.module.instructions
        if each.opcode in ("ld", "ldu", "wmma", "cp") and not _STRONG.intersection(each.modifiers)
    )  # fmt: skip
    warps = float(blocks * -(-int(np.prod(launch.block)) // 32))

    def beyond(counts: Counts) -> tuple[float, float]:
        """Return latency and spread of an average load: what is not in the L2 is in DRAM."""
        in_step = IN_STEP * max(0.0, footprint.awaited - footprint.read)
        missed = footprint.read + in_step + footprint.between_waves
        share = min(1.0, missed / max(32.0, 32 * (plain or counts.load_sectors)))
        latency = share * constants.dram_latency + (1 - share) * constants.l2_latency
        return latency, share * constants.dram_latency * constants.latency_spread

    machine: KernelCode | None = None
    machine_chain = None
    if code is None:
        counts = count_by_kind(launch.module, result, 1.0)
        counts.hottest_atomic = float(result.hottest_atomic_sector)
        latency, _ = beyond(counts)
        chain = chain_clocks(
            launch.module, result.first_warp_path, lambda _: latency, waits.__getitem__
        )
    else:
        machine = known = KernelCode(launch.module, launch.module.functions[launch.kernel], code)
        executions = machine.executions(result, 1.0, warps)
        shares = machine.shares(executions, result, 1.0)
        counts = count_by_kind(launch.module, result, 1.0, shares)
        counts.hottest_atomic = float(result.hottest_atomic_sector)
        counts = machine.replace(counts, executions, result, 1.0, warps, shares)
        latency, spread = beyond(counts)
        length = len(launch.module.instructions)

        def machine_chain(executions: list[float], warps: float) -> float:
            return known.chain(executions, warps, [latency] * length, [spread] * length, waits)

        chain = machine_chain(executions, warps)
    slowest = slowest_path(launch.module, result, warps, machine, machine_chain)
    counts.barriers_per_warp = max(counts.barriers_per_warp, slowest.barriers)
    note_atomics(runner, outputs, atomics)
    return LaunchCounters(
        kernel=launch.kernel,
        grid=launch.grid,
        block=launch.block,
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        samples=[counts],
        sampled_blocks=blocks,
        resident_blocks=max(1, held.blocks),
        chain_clocks=chain * slowest.delay,
        slowest_warp=slowest.delay,
        l1_load_sectors=counts.load_sectors,
        l1_hit_sectors=0.0,
        read_footprint=footprint.read,
        write_footprint=footprint.written,
        reread_bytes=footprint.between_waves,
        filled_bytes=filled_bytes([counts], footprint),
        written=written_of(runner, blocks, 1, random.Random(0), outputs),
        read=[place for place in range(len(asked.memory.starts)) if runner.reads(place)],
        joins_blocks=runner.joins_blocks(),
    )

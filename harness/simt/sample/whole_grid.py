"""Counts a launch whose blocks may know of each other: all of them, in one run."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...gpus import Gpu
from ...occupancy import Occupancy
from ..counters import Counts, LaunchCounters
from ..model.constants import constants_of
from ..run import core
from ..run.block_runs import BlockRuns, LaunchFailed
from ..run.candidate import KernelLaunch
from ..sass.listing import MachineCode
from ..sass.sums import KernelCode
from .dependence import TooUneven, Unaffordable, shared_counter
from .footprint import filled_bytes, footprint_of
from .instruction_counts import count_by_kind
from .memory_traffic import IN_STEP, constant_waits
from .sampled_runs import is_uneven
from .slowest_warp import slowest_path
from .warp_chain import chain_clocks
from .written import written_of

PILOT_INSTRUCTIONS = 2_000_000
"""Warp instructions after which the share of an output that is there tells what all of it takes."""

_STRONG = frozenset(("volatile", "relaxed", "acquire"))


def whole_launch(
    gpu: Gpu,
    asked: KernelLaunch,
    held: Occupancy,
    budget: int,
    code: MachineCode | None,
    outputs: Mapping[int, int],
    why: str,
) -> LaunchCounters:
    """Return the counters of all blocks in one run; the arguments are `sample_launch`'s.

    No L1 is replayed.

    Args:
        why: what of the launch says that a few of its blocks stand for nothing.

    Raises:
        LaunchFailed: a block did something that ends a launch.
        Unaffordable: all blocks are more work than the budget.
        TooUneven: they differ so much that the model cannot tell the launch's time.
    """
    launch = asked.launch
    blocks = launch.block_count
    takes_turns = bool(shared_counter(launch)) and not launch.grid_workspace
    needed = _needed(asked, outputs)
    if needed > budget:
        raise Unaffordable(
            f"{why}; all of them together are about {needed / 1e6:.0f} million warp instructions, "
            f"over the limit of {budget / 1e6:.0f}: at full dimensions this needs a real GPU"
        )
    runner = BlockRuns(asked, budget)
    constants = constants_of(gpu)
    try:
        # Where a few blocks may stand for it after all, they must not find what this one left.
        keep = not (takes_turns or launch.grid_workspace)
        result = runner.run(
            range(blocks), random=True, keep=keep, fair=takes_turns,
            hop_clocks=(round(constants.hop_clocks), round(constants.atomic_hop_clocks)),
        )  # fmt: skip
    except LaunchFailed as error:
        if error.waits or any(report.kind != "timed_out" for report in error.reports):
            raise
        raise Unaffordable(
            f"{why}; all of them together are more than {budget / 1e6:.0f} million warp "
            "instructions: at full dimensions this needs a real GPU"
        ) from error
    if blocks > 1 and is_uneven(gpu, result.work, int(result.work.max()), blocks):
        raise TooUneven(launch.kernel)
    footprint = footprint_of(
        gpu, asked.memory, runner.fresh, runner.uses, blocks, held, whole_range=True
    )
    waits = constant_waits(gpu, result)
    # Looks at what others write, which lies in the L2, take nothing from the wait of other loads.
    instructions = launch.module.instructions
    looks = [bool(_STRONG.intersection(each.modifiers)) for each in instructions]
    plain = sum(
        float(result.counters["sectors"][each.index]) for each in instructions
        if each.opcode in ("ld", "ldu", "wmma", "cp") and not looks[each.index]
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
        written = result.path.looks_at_written
        looked = written * constants.l2_latency + (1 - written) * latency
        latencies = [looked if look else latency for look in looks]
        spreads = [(1 - written) * spread if look else spread for look in looks]

        def machine_chain(executions: list[float], warps: float) -> float:
            return known.chain(executions, warps, latencies, spreads, waits)

        chain = machine_chain(executions, warps)
    slowest = slowest_path(launch.module, result, warps, machine, machine_chain)
    path, last = result.path, 0.0
    if path.last_clocks:
        probe = replace(result, critical=path.last)
        last = slowest_path(launch.module, probe, warps, machine, machine_chain).delay
    counts.barriers_per_warp = max(counts.barriers_per_warp, slowest.barriers)
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
        # The block that ends last is known step by step, what it waited for by its length.
        path_blocks=last / slowest.delay
        + (path.clocks - path.last_clocks) / max(1, path.own_clocks),
        path_waits=float(path.waits),
        l1_load_sectors=counts.load_sectors,
        l1_hit_sectors=0.0,
        read_footprint=footprint.read,
        write_footprint=footprint.written,
        reread_bytes=footprint.between_waves,
        constant_bytes=64.0 * result.constant_lines,
        filled_bytes=filled_bytes([counts], footprint),
        written=written_of(runner, blocks, 1, random.Random(0), outputs),
        read=runner.read(),
        simulated=runner.spent,
    )


def _needed(asked: KernelLaunch, outputs: Mapping[int, int]) -> float:
    """Return about how many warp instructions all blocks take, 0 where a first look cannot tell.

    Blocks run one after the other there, so that the first results are soon complete.
    """
    result = core.run(
        asked.launch, asked.memory, checks=False, max_instructions=PILOT_INSTRUCTIONS, keep=True
    )
    core.take_back(result)
    if not result.timed_out:
        return 0.0
    shares = [
        32.0 * result.uses[place].written_sectors / size
        for place, size in outputs.items()
        if place in result.uses and result.uses[place].written_sectors
    ]
    return PILOT_INSTRUCTIONS / min(shares) if shares else 0.0

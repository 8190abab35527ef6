"""Counts a launch whose blocks may know of each other: all of them, in one run."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...gpus import Gpu
from ...occupancy import Occupancy
from ..counters import LaunchCounters
from ..model.constants import constants_of
from ..ptx.records import Module
from ..run import core
from ..run.block_runs import BlockRuns, LaunchFailed
from ..run.candidate import KernelLaunch
from ..sass.listing import MachineCode
from ..sass.sums import kernel_code
from .blocks import block_choice as choose
from .blocks.dependence import TooUneven, Unaffordable, shared_counter
from .blocks.sampled_runs import SampledRuns, is_uneven
from .blocks.unlike_blocks import Each
from .instructions.instruction_counts import count_by_kind
from .instructions.slowest_warp import slowest_path
from .instructions.warp_chain import chain_clocks
from .outputs.written import written_of
from .put_together import put_together
from .traffic.memory_traffic import MemoryTraffic, constant_waits, traffic_of

PILOT_INSTRUCTIONS = 2_000_000
"""Warp instructions after which the share of an output that is there tells what all of it takes."""

_STRONG = frozenset(("volatile", "relaxed", "acquire"))


def whole_launch(
    gpu: Gpu,
    asked: KernelLaunch,
    held: Occupancy,
    shared_bytes: int,
    budget: int,
    code: MachineCode | None,
    outputs: Mapping[int, int],
    why: str,
) -> LaunchCounters:
    """Return the counters of all blocks in one run; the arguments are `sample_launch`'s.

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
    group = choose.group(gpu, blocks, max(1, held.blocks), random.Random(0))
    try:
        # Where a few blocks may stand for it after all, they must not find what this one left.
        keep = not (takes_turns or launch.grid_workspace)
        result = runner.run(
            range(blocks), trace=group, random=True, keep=keep, fair=takes_turns,
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
    assert result.trace is not None
    runs = SampledRuns(
        gpu, runner, blocks, result, [(range(blocks), result)], group,
        replace(result, trace=result.trace.select(group)), whole_range=True,
    )  # fmt: skip
    waits = constant_waits(gpu, result)
    warps = float(blocks * launch.block_warps)
    machine_chain = None
    executions: list[float] = []
    shares = np.ones(len(launch.module.instructions))
    machine = kernel_code(launch.module, launch.module.functions[launch.kernel], code, result)
    if machine is not None:
        executions = machine.executions(result, 1.0, warps)
        shares = machine.shares(executions, result, 1.0)
    counts = count_by_kind(launch.module, result, 1.0, shares)
    counts.hottest_atomic = float(result.hottest_atomic_sector)
    if machine is not None:
        counts = machine.replace(counts, executions, result, 1.0, warps, shares)
    traffic = traffic_of(gpu, launch.module, runs, held, shared_bytes, [counts], shares)
    latencies, spreads = _of_looks(gpu, launch.module, traffic, result)
    if machine is None:
        chain = chain_clocks(
            launch.module, result.first_warp_path, latencies.__getitem__, waits.__getitem__
        )
    else:
        known = machine

        def machine_chain(executions: list[float], warps: float) -> float:
            return known.chain(
                executions, warps, latencies, spreads, waits, traffic.echoes, traffic.flights
            )

        chain = machine_chain(executions, warps)
    slowest = slowest_path(launch.module, result, warps, machine, machine_chain)
    path, last = result.path, 0.0
    if path.last_clocks:
        probe = replace(result, critical=path.last)
        last = slowest_path(launch.module, probe, warps, machine, machine_chain).delay
    counts.barriers_per_warp = max(counts.barriers_per_warp, slowest.barriers)
    return replace(
        put_together(
            runs, held, [counts], traffic, chain, slowest, Each(result.work.astype(np.float64))
        ),
        # The block that ends last is known step by step, what it waited for by its length.
        path_blocks=last / slowest.delay
        + (path.clocks - path.last_clocks) / max(1, path.own_clocks),
        path_waits=float(path.waits),
        written=written_of(runner, blocks, 1, random.Random(0), outputs, 0),
    )


def _of_looks(
    gpu: Gpu, module: Module, traffic: MemoryTraffic, result: core.Result
) -> tuple[list[float], list[float]]:
    """Return how long loads wait, and the spread: what the launch wrote lies in the L2.

    Args:
        gpu: the GPU that is simulated.
        module: what was run.
        traffic: what the launch moves.
        result: what came of it: each instruction has its own share of looks at that.
    """
    latencies, spreads = list(traffic.latencies), list(traffic.spreads)
    for each in module.instructions:
        if _STRONG.intersection(each.modifiers):
            at = each.index
            row = result.counters[at]
            written = float(row["looks_at_written"]) / max(1.0, float(row["looks"]))
            latencies[at] += written * (constants_of(gpu).l2_latency - latencies[at])
            spreads[at] *= 1 - written
    return latencies, spreads


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

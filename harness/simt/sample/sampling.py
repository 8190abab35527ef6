"""Profiles one launch from few of its blocks, and scales what they counted to the grid."""

from __future__ import annotations

import random
from collections.abc import Mapping, Set
from dataclasses import replace
from functools import partial
from statistics import fmean

import numpy as np

from ...gpus import Gpu
from ...occupancy import Occupancy
from ..counters import Counts, LaunchCounters
from ..run.block_runs import LaunchFailed
from ..run.candidate import KernelLaunch
from ..run.core import Launch
from ..sass.listing import MachineCode
from ..sass.sums import elected_atomics, kernel_code
from .blocks.dependence import TooUneven, Unaffordable, shared_counter
from .blocks.effort import FULL, Effort
from .blocks.race_checks import MOST_DEPENDENT, neighbours, races
from .blocks.sampled_runs import SampledRuns, hottest_atomic, run_samples
from .blocks.unlike_blocks import each_block
from .instructions.instruction_counts import count_by_kind
from .instructions.slowest_warp import slowest_path
from .instructions.warp_chain import chain_clocks
from .outputs.written import Atomics, note_atomics, written_of
from .put_together import put_together
from .repeats import block_work
from .traffic.contention import turns_of_all_blocks
from .traffic.memory_traffic import constant_waits, traffic_of
from .whole_grid import whole_launch


def sample_launch(
    gpu: Gpu,
    asked: KernelLaunch,
    held: Occupancy,
    shared_bytes: int,
    budget: int,
    code: MachineCode | None,
    generator: random.Random,
    outputs: Mapping[int, int],
    atomics: Atomics | None = None,
    incomplete: Set[int] = frozenset(),
    effort: Effort = FULL,
) -> LaunchCounters:
    """Return the scaled counters of a launch.

    Args:
        gpu: the GPU that is simulated.
        asked: the launch.
        held: its occupancy.
        shared_bytes: static and dynamic shared memory of a block.
        budget: warp instructions that one run may execute.
        code: the kernel's machine code with PTX statements for lines; None: PTX has to do.
        generator: chooses the blocks.
        outputs: bytes of each output by its place among the allocations.
        atomics: gets the sectors of each output that atomics touched, from the output's start.
        incomplete: places of the allocations that earlier launches left without some blocks' part.
        effort: warp instructions that it should take.

    Raises:
        LaunchFailed: a block did something that ends a launch, or ran too long.
        TooUneven: a few blocks do not stand for the others.
        Unaffordable: no few blocks stand for the others, and all of them are too much work.
        UnsupportedInstruction: the core does not know an instruction of the kernel.
    """
    launch = asked.launch
    if code:
        launch = replace(launch, elected=elected_atomics(launch.module, code))
        asked = replace(asked, launch=launch)
    dependent = shared_counter(launch)
    if launch.grid_workspace:
        dependent = "its blocks wait for each other at a barrier of the grid"
    seed = generator.getrandbits(32) | 1
    near = list(range(min(MOST_DEPENDENT, launch.block_count)))
    found, looked_at = races(
        asked, near if dependent else neighbours(asked, effort.races, generator), effort.races,
        seed, incomplete,
    )  # fmt: skip
    if found:
        raise LaunchFailed(launch.kernel, found)
    whole = partial(whole_launch, gpu, asked, held, shared_bytes, budget, code, outputs)
    if dependent:
        return replace(whole(dependent), race_checked_blocks=looked_at)
    looks = "its blocks read where others of the launch write, and may go by what they find"
    too_much: Unaffordable | None = None
    if launch.program.polls:
        # Its blocks may wait for each other, so they run all together, where that is affordable.
        try:
            return replace(whole(looks), race_checked_blocks=looked_at)
        except Unaffordable as error:
            too_much = error
    runs = run_samples(gpu, asked, held, budget, generator, outputs, effort)
    runner, blocks = runs.runner, runs.blocks
    if runner.looks_at_others():
        if too_much:
            raise too_much
        runner.take_back()
        return replace(whole(looks), race_checked_blocks=looked_at)
    if runs.too_uneven():
        raise TooUneven(launch.kernel)
    written = written_of(runner, blocks, runs.cost, generator, outputs, effort.sample)
    if (blocks - len(runner.ran)) * runs.cost <= effort.complete:
        rest = [block for block in range(blocks) if block not in runner.ran]
        runner.complete(rest)
    if len(runner.ran) < blocks:
        note_atomics(runner, outputs, atomics)
    return replace(
        _scaled(gpu, launch, runs, held, shared_bytes, code),
        written=written,
        race_checked_blocks=looked_at,
    )


def _scaled(
    gpu: Gpu,
    launch: Launch,
    runs: SampledRuns,
    held: Occupancy,
    shared_bytes: int,
    code: MachineCode | None,
) -> LaunchCounters:
    """Return what few blocks counted, scaled to the grid; the arguments are `sample_launch`'s."""
    runner, blocks = runs.runner, runs.blocks
    function = launch.module.functions[launch.kernel]
    machine = kernel_code(launch.module, function, code, runs.samples[0][1])
    warps = float(blocks * -(-int(np.prod(launch.block)) // 32))
    ways: list[list[float]] = []
    shares = np.ones(len(launch.module.instructions))
    samples = []
    of_all_blocks = turns_of_all_blocks(runs)
    for chosen, result in runs.samples:
        scale = blocks / len(chosen)
        if machine is not None:
            ways.append(executions := machine.executions(result, scale, warps))
            shares = machine.shares(executions, result, scale)
        counts = count_by_kind(launch.module, result, scale, shares)
        counts.hottest_atomic = max(
            hottest_atomic(runs.probe, result, len(chosen), blocks), of_all_blocks
        )
        if machine is not None:
            counts = machine.replace(counts, executions, result, scale, warps, shares)
        samples.append(counts)
    traffic = traffic_of(gpu, launch.module, runs, held, shared_bytes, samples, shares)
    waits = constant_waits(gpu, runs.resident)

    def machine_chain(executions: list[float], warps: float) -> float:
        assert machine is not None
        return machine.chain(
            executions, warps, traffic.latencies, traffic.spreads, waits, traffic.echoes,
            traffic.flights,
        )  # fmt: skip

    if ways:
        chain = fmean(machine_chain(executions, warps) for executions in ways)
    else:
        chain = chain_clocks(
            launch.module, runs.probe.first_warp_path, traffic.latencies.__getitem__,
            waits.__getitem__,
        )  # fmt: skip
    slowest = slowest_path(
        launch.module, runs.probe, warps / blocks, machine, machine_chain
    )  # fmt: skip
    lonely = runs.lonely_block()
    # A block that few draws meet is followed alone, whether this one has or not.
    each = each_block(runs, machine if lonely is None else None, warps / blocks, machine_chain)
    if each.clocks is not None:
        chain = float(each.clocks.mean()) / slowest.delay
    elif machine is not None and lonely is not None:
        # Beside idle blocks an average warp has next to nothing to wait for: the block that does
        # the work waits as long as it does alone.
        of_one = warps / blocks
        alone = machine.executions(runner.run([lonely]), 1.0, of_one)
        chain = max(chain, machine_chain(alone, of_one) / runs.longest_block())
    for counts in samples:
        counts.barriers_per_warp = max(counts.barriers_per_warp, slowest.barriers)
    return replace(
        put_together(runs, held, samples or [Counts()], traffic, chain, slowest, each),
        standard_error=runs.standard_error(),
        joins_blocks=len(runner.ran) < blocks and runner.joins_blocks(),
        repeatable=True,
        block_work=block_work(runs.samples),
    )

"""Profiles one launch from few of its blocks: which to run, and how to scale what they counted.

Random blocks give the counts (two disjoint samples, so that their difference shows), the blocks
that one SM would hold together give the L1, and the corners of the grid give the footprint.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..counters import Counts, LaunchCounters
from ..gpus import Gpu
from ..occupancy import Occupancy, shared_carveout
from ..ptx.records import Module
from ..run import core
from ..run.block_runs import SAMPLE_INSTRUCTIONS, BlockRuns, LaunchFailed
from ..run.candidate import KernelLaunch
from ..run.replay import replay_l1, trace_shape
from ..sass.listing import MachineCode
from ..sass.sums import KernelCode
from . import block_choice as choose
from .footprint import (
    fetched_halves,
    fetched_share,
    filled_bytes,
    first_halves,
    footprint_of,
    lost_reuse,
)
from .instruction_counts import count_by_kind
from .warp_chain import chain_clocks
from .written import written_of

WRITE_ACCESSES = 2.0
"""Accesses of DRAM for a store to a single place: it reads the rest, and writes."""
IN_STEP = 0.4
"""Of the blocks that run together and read the same, how many wait for DRAM with the first of them.
Fitted: second_look's two products through tf32 want about 1, held_out's mm_wmma_shared 0.1."""
UNEVEN = 0.005
"""Difference of two samples' instructions from which more blocks are sampled."""
MOST_UNEVEN = 192
"""Blocks in one random sample where blocks differ much in their work."""
OUTLIER = 16.0
"""How often an average block's work one block may do, where that is a tenth of the whole grid's."""
ALMOST_ALL = 0.75
"""Of the whole grid's work, what one of several blocks may do: a few blocks are an average too."""


class TooUneven(Exception):
    """The blocks of a launch differ so much in their work that a few do not tell the time."""


def sample_launch(
    gpu: Gpu,
    asked: KernelLaunch,
    held: Occupancy,
    shared_bytes: int,
    budget: int,
    code: MachineCode | None,
    generator: random.Random,
    outputs: Mapping[int, int],
    atomics: dict[int, list[npt.NDArray[np.int64]]] | None = None,
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

    Raises:
        LaunchFailed: a block did something that ends a launch, or ran too long.
        TooUneven: a few blocks do not stand for the others.
        UnsupportedInstruction: the core does not know an instruction of the kernel.
    """
    launch = asked.launch
    blocks = int(np.prod(launch.grid))
    if launch.grid_workspace or launch.program.polls:
        # Its blocks may wait for each other, so they run all together, where that is affordable.
        try:
            return _whole_launch(gpu, asked, held, budget, code, outputs, atomics)
        except LaunchFailed as error:
            if launch.grid_workspace or any(report.kind != "timed_out" for report in error.reports):
                raise
    runner = BlockRuns(asked, budget)
    group = choose.group(gpu, blocks, max(1, held.blocks), generator)
    # A block may do less when it runs again on what it wrote: no block runs twice where the grid
    # is large enough.
    first = choose.fresh(blocks, 1, group, generator)
    probe = runner.run(first, trace=True)
    cost = max(1, int(_work(probe)))
    first_sample, second_sample = choose.samples(
        blocks, max(1, SAMPLE_INSTRUCTIONS // cost), {*group, *first}, generator
    )
    function = launch.module.functions[launch.kernel]
    machine = KernelCode(launch.module, function, code) if code else None
    warps = float(blocks * -(-int(np.prod(launch.block)) // 32))
    executions: list[float] = []
    shares = np.ones(len(launch.module.instructions))
    taken = [(chosen, runner.run(chosen, random=True))
             for chosen in (first_sample, second_sample) if chosen]  # fmt: skip
    if _differ(taken):
        more = min(MOST_UNEVEN, 4 * SAMPLE_INSTRUCTIONS // cost, (blocks - len(runner.ran)) // 2)
        if more > len(first_sample):
            rest = choose.fresh(blocks, 2 * more, runner.ran, generator)
            taken = [(chosen, runner.run(chosen, random=True))
                     for chosen in (rest[:more], rest[more:]) if chosen]  # fmt: skip
    samples = []
    for chosen, result in taken:
        scale = blocks / len(chosen)
        if machine is not None:
            executions = machine.executions(result, scale, warps)
            shares = machine.shares(executions, result, scale)
        counts = count_by_kind(launch.module, result, scale, shares)
        counts.hottest_atomic = _hottest(probe, result, len(chosen), blocks)
        if machine is not None:
            counts = machine.replace(counts, executions, result, scale, warps, shares)
        samples.append(counts)
    group = group[: max(1, 2 * SAMPLE_INSTRUCTIONS // cost)]
    resident = runner.run(group, trace=True) if len(group) > 1 else probe
    corners = [block for block in choose.corners(launch.grid) if block not in runner.ran]
    affordable = cost < SAMPLE_INSTRUCTIONS
    if corners and affordable:
        runner.run(corners)
    takes_turns = _takes_turns(machine, probe, taken)
    if not takes_turns and _too_uneven(runner, taken, blocks):
        raise TooUneven(launch.kernel)
    written = written_of(runner, blocks, cost, generator, outputs)
    if atomics is not None:
        for place in outputs:
            if (touched := runner.atomics(place)).size:
                atomics.setdefault(place, []).append(touched)
    carveout = shared_carveout(gpu.limits, shared_bytes, max(1, held.blocks))
    assert resident.trace is not None
    replay = replay_l1(
        [resident.trace], gpu.limits.l1_bytes - carveout, len(launch.module.instructions)
    )
    seen, hits = replay.made(shares)
    loads = _loads(launch.module)
    group_scale = blocks / len(group)
    load_sectors = float(seen[loads].sum())
    load_hits = float(hits[loads].sum())
    missed = load_sectors - load_hits
    footprint = footprint_of(
        gpu, asked.memory, runner.fresh, runner.uses, blocks, held,
        whole_range=affordable or not corners,
    )  # fmt: skip
    reread = footprint.between_waves
    if footprint.overflow:
        # The resident blocks of all SMs together overflow the L2: what one SM loads again, its
        # L1 having lost it, the L2 has lost as well.
        distinct = float(sum(use.read_sectors for use in resident.uses))
        lost = lost_reuse(footprint.overflow)
        reread += lost * max(0.0, missed - distinct) * 32 * group_scale
    loads_shape, stores_shape = trace_shape(resident.trace)
    halves = fetched_halves(replay.misses, loads_shape)
    fetched = fetched_share(halves, footprint.overflow)
    filled = filled_bytes(samples, footprint)
    # The share of the scattered writes that reach DRAM one by one.
    alone = filled / max(1.0, footprint.written)
    if samples and samples[0].atomic_requests:
        alone = float(footprint.written > gpu.l2_bytes)
    misses = missed * group_scale * 32
    dram_share = min(1.0, (footprint.read + reread) / misses) if misses else 1.0
    constants = gpu.constants
    together = footprint.awaited * first_halves(halves) - footprint.read
    waited = footprint.read + IN_STEP * max(0.0, together)
    awaited = min(1.0, (waited + reread) / misses) if misses else 1.0
    beyond = awaited * constants.dram_latency + (1 - awaited) * constants.l2_latency
    counters = resident.counters

    def load_latency(index: int) -> float:
        sectors = float(seen[index])
        hit = float(hits[index]) / sectors if sectors else 0.0
        requests = float(counters["global_requests"][index])
        lines = float(counters["lines"][index]) / requests if requests else 1.0
        return hit * constants.l1_latency + (1 - hit) * beyond + (lines - 1)

    def load_spread(index: int) -> float:
        sectors = float(seen[index])
        missed = 1 - float(hits[index]) / sectors if sectors else 1.0
        return missed * awaited * constants.dram_latency * constants.latency_spread

    return LaunchCounters(
        kernel=launch.kernel,
        grid=launch.grid,
        block=launch.block,
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        samples=samples or [Counts()],
        sampled_blocks=len(runner.ran),
        resident_blocks=max(1, held.blocks),
        chain_clocks=machine.chain(
            executions, warps, [load_latency(index) for index in range(len(seen))],
            [load_spread(index) for index in range(len(seen))],
        )
        if machine is not None and executions
        else chain_clocks(launch.module, probe.first_warp_path, load_latency),
        l1_load_sectors=load_sectors * group_scale,
        l1_hit_sectors=load_hits * group_scale,
        read_footprint=footprint.read,
        write_footprint=footprint.written,
        reread_bytes=reread + (footprint.read + reread) * (fetched - 1),
        dram_accesses=group_scale * (
            loads_shape.places * dram_share * (1 - replay.hit_rate(loads))
            + WRITE_ACCESSES * stores_shape.places * alone
        ),
        filled_bytes=filled,
        atomic_lines=runner.atomic_lines(),
        takes_turns=takes_turns,
        local_bytes=float(launch.local_bytes),
        written=written,
        read=[place for place in range(len(asked.memory.starts)) if runner.reads(place)],
        joins_blocks=runner.joins_blocks(),
    )


def _differ(taken: Sequence[tuple[Sequence[int], core.Result]]) -> bool:
    """Say whether the samples executed clearly different numbers of instructions a block."""
    if len(taken) < 2:
        return False
    each = [_work(result) / len(chosen) for chosen, result in taken]
    return max(each) > (1 + UNEVEN) * min(each)


def _too_uneven(
    runner: BlockRuns, taken: Sequence[tuple[Sequence[int], core.Result]], blocks: int
) -> bool:
    """Say whether one block does so much that the grid's work is not spread over the SMs.

    A grid may leave its work to a few blocks: the chance of drawing one of them is small, and the
    corners of the grid, where such a block mostly lies, are run beside the samples.
    """
    if not taken or blocks == 1:
        return False
    each = [_work(result) / len(chosen) for chosen, result in taken]
    average = max(1.0, sum(each) / len(each))
    busiest = max(result.busiest_block for _, result in runner.uses)
    whole = blocks * average
    return busiest > max(OUTLIER * average, 0.1 * whole) or busiest > ALMOST_ALL * whole


def _work(result: core.Result) -> float:
    """Return the warp instructions of a run."""
    return float(result.counters["warps"].sum())


def _takes_turns(
    machine: KernelCode | None,
    probe: core.Result,
    taken: Sequence[tuple[Sequence[int], core.Result]],
) -> bool:
    """Say whether blocks take their work from a shared counter: then a few show nothing of all.

    The first block of a run finds all the work there, those after it find none left.
    """
    if machine is None or not machine.returns_atomics() or not taken:
        return False
    work = sum(_work(result) for _, result in taken)
    each = work / max(1, sum(len(chosen) for chosen, _ in taken))
    return _work(probe) > 8 * max(1.0, each)


def _whole_launch(
    gpu: Gpu,
    asked: KernelLaunch,
    held: Occupancy,
    budget: int,
    code: MachineCode | None,
    outputs: Mapping[int, int],
    atomics: dict[int, list[npt.NDArray[np.int64]]] | None,
) -> LaunchCounters:
    """Return the counters of all blocks in one run. No L1 is replayed."""
    launch = asked.launch
    blocks = launch.block_count
    runner = BlockRuns(asked, budget)
    result = runner.run(range(blocks), random=True)
    footprint = footprint_of(
        gpu, asked.memory, runner.fresh, runner.uses, blocks, held, whole_range=True
    )
    constants = gpu.constants

    def beyond(counts: Counts) -> tuple[float, float]:
        """Return latency and spread of an average load: what is not in the L2 is in DRAM."""
        missed = footprint.read + footprint.between_waves
        share = min(1.0, missed / max(32.0, 32 * counts.load_sectors))
        latency = share * constants.dram_latency + (1 - share) * constants.l2_latency
        return latency, share * constants.dram_latency * constants.latency_spread

    if code is None:
        counts = count_by_kind(launch.module, result, 1.0)
        counts.hottest_atomic = float(result.hottest_atomic_sector)
        latency, _ = beyond(counts)
        chain = chain_clocks(launch.module, result.first_warp_path, lambda _: latency)
    else:
        machine = KernelCode(launch.module, launch.module.functions[launch.kernel], code)
        warps = float(blocks * -(-int(np.prod(launch.block)) // 32))
        executions = machine.executions(result, 1.0, warps)
        shares = machine.shares(executions, result, 1.0)
        counts = count_by_kind(launch.module, result, 1.0, shares)
        counts.hottest_atomic = float(result.hottest_atomic_sector)
        counts = machine.replace(counts, executions, result, 1.0, warps, shares)
        latency, spread = beyond(counts)
        length = len(launch.module.instructions)
        chain = machine.chain(executions, warps, [latency] * length, [spread] * length)
    if atomics is not None:
        for place in outputs:
            if (touched := runner.atomics(place)).size:
                atomics.setdefault(place, []).append(touched)
    return LaunchCounters(
        kernel=launch.kernel,
        grid=launch.grid,
        block=launch.block,
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        samples=[counts],
        sampled_blocks=blocks,
        resident_blocks=max(1, held.blocks),
        chain_clocks=chain,
        l1_load_sectors=counts.load_sectors,
        l1_hit_sectors=0.0,
        read_footprint=footprint.read,
        write_footprint=footprint.written,
        reread_bytes=footprint.between_waves,
        written=written_of(runner, blocks, 1, random.Random(0), outputs),
        read=[place for place in range(len(asked.memory.starts)) if runner.reads(place)],
        joins_blocks=runner.joins_blocks(),
    )


def _loads(module: Module) -> list[int]:
    """Return the indices of the instructions that load from global memory."""
    return [
        instruction.index
        for instruction in module.instructions
        if instruction.opcode in ("ld", "ldu", "wmma", "cp")
        and "store" not in instruction.modifiers
    ]


def _hottest(probe: core.Result, result: core.Result, ran: int, blocks: int) -> float:
    """Return the atomics on the most contended address of the whole grid.

    One address may be shared by all blocks, or each block has its own: how the maximum grows from
    one block to the sample says which.
    """
    one, many = float(probe.hottest_atomic_sector), float(result.hottest_atomic_sector)
    if one <= 0 or many <= 0 or ran < 2:
        return many * (blocks / ran if ran else 1.0)
    growth = min(1.0, max(0.0, math.log(many / one) / math.log(ran)))
    return float(many * (blocks / ran) ** growth)

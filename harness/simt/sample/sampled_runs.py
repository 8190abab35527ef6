"""Runs the blocks of a launch that stand for its grid, and says whether they do.

Random blocks give the counts (two disjoint samples, so that their difference shows), the blocks
that one SM would hold together give the L1, and the corners of the grid give the footprint.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...gpus import Gpu
from ...occupancy import Occupancy
from ..run import core
from ..run.block_runs import SAMPLE_INSTRUCTIONS, BlockRuns
from ..run.candidate import KernelLaunch
from . import block_choice as choose

UNEVEN = 0.005
"""Difference of two samples' instructions from which more blocks are sampled."""
MOST_UNEVEN = 192
"""Blocks in one random sample where blocks differ much in their work."""
OUTLIER = 16.0
MOST_GROUPS = 6
"""SMs that are looked at for one whose blocks work like others."""
"""How often an average block's work one block may do, where that is a tenth of the whole grid's."""
ALMOST_ALL = 0.75
"""Of the whole grid's work, what one of several blocks may do: a few blocks are an average too."""
LEAST_BUSY = 0.25
"""Of the SMs that a grid can fill, those that must have work, were it in equal parts."""
COMPLETE_INSTRUCTIONS = 2_000_000
"""Warp instructions up to which the blocks that are left are run too."""

Samples = Sequence[tuple[Sequence[int], core.Result]]
"""Blocks drawn at random, and what came of them."""


@dataclass(frozen=True)
class SampledRuns:
    """What ran of a launch, in the order of its making."""

    gpu: Gpu
    runner: BlockRuns
    blocks: int
    """Of the grid."""
    probe: core.Result
    """One block alone."""
    samples: Samples
    group: Sequence[int]
    """Blocks that one SM would hold together."""
    resident: core.Result
    """Those, with their accesses in order."""
    whole_range: bool
    """The corners of the grid ran too, or it has none that had not run."""

    @property
    def cost(self) -> int:
        """Warp instructions of one block."""
        return max(1, int(_work(self.probe)))

    def longest_block(self) -> float:
        """Return the work of the busiest block over an average block's."""
        busiest = max(int(result.work.max()) for _, result in self.runner.uses)
        average = _average(self.samples)
        return max(1.0, busiest / average) if average else 1.0

    def too_uneven(self) -> bool:
        """Say whether few blocks do so much that the grid's work is not spread over the SMs.

        A grid may leave its work to a few blocks: the chance of drawing one of them is small, and
        the corners of the grid, where such a block mostly lies, are run beside the samples.
        """
        if not self.samples or self.blocks == 1:
            return False
        work = np.concatenate([result.work for _, result in self.samples])
        busiest = max(int(result.work.max()) for _, result in self.runner.uses)
        return is_uneven(self.gpu, work, busiest, self.blocks)


def is_uneven(gpu: Gpu, work: npt.NDArray[np.int64], busiest: int, blocks: int) -> bool:
    """Say whether few blocks do too much of a grid's work to be timed as if all SMs shared it.

    Args:
        gpu: the GPU that is simulated.
        work: warp instructions of each of some blocks that stand for the grid, or of all.
        busiest: warp instructions of the busiest block known.
        blocks: blocks of the grid.
    """
    each = work.astype(np.float64)
    average = max(1.0, float(each.mean()))
    whole = blocks * average
    if busiest > max(OUTLIER * average, 0.1 * whole) or busiest > ALMOST_ALL * whole:
        return True
    busy = float(each.sum() ** 2 / max(1.0, float((each**2).sum()))) * blocks / len(each)
    return busy < LEAST_BUSY * min(blocks, gpu.sms)


def run_samples(
    gpu: Gpu, asked: KernelLaunch, held: Occupancy, budget: int, generator: random.Random
) -> SampledRuns:
    """Choose blocks of a launch and run them; the arguments are `sample_launch`'s.

    Raises:
        LaunchFailed: a block did something that ends a launch, or ran too long.
    """
    blocks = asked.launch.block_count
    runner = BlockRuns(asked, budget)
    group = choose.group(gpu, blocks, max(1, held.blocks), generator)
    # A block may do less when it runs again on what it wrote: no block runs twice where the grid
    # is large enough.
    first = choose.fresh(blocks, 1, group, generator)
    probe = runner.run(first, trace=True)
    cost = max(1, int(_work(probe)))
    pair = choose.samples(
        blocks, max(1, SAMPLE_INSTRUCTIONS // cost), {*group, *first}, generator
    )  # fmt: skip
    samples = [(chosen, runner.run(chosen, random=True)) for chosen in pair if chosen]
    if _differ(samples):
        more = min(MOST_UNEVEN, 4 * SAMPLE_INSTRUCTIONS // cost, (blocks - len(runner.ran)) // 2)
        if more > len(pair[0]):
            rest = choose.fresh(blocks, 2 * more, runner.ran, generator)
            samples = [(chosen, runner.run(chosen, random=True))
                       for chosen in (rest[:more], rest[more:]) if chosen]  # fmt: skip
    group = group[: max(1, 2 * SAMPLE_INSTRUCTIONS // cost)]
    resident = runner.run(group, trace=True) if len(group) > 1 else probe
    for _ in range(MOST_GROUPS if len(group) > 1 else 0):
        # Where idle blocks recur with the SMs, one of these may hold nothing else.
        if 2 * _work(resident) / len(group) >= _average(samples):
            break
        group = choose.group(gpu, blocks, max(1, held.blocks), generator)[: len(group)]
        resident = runner.run(group, trace=True)
    corners = [block for block in choose.corners(asked.launch.grid) if block not in runner.ran]
    affordable = cost < SAMPLE_INSTRUCTIONS
    if corners and affordable:
        runner.run(corners)
    return SampledRuns(
        gpu, runner, blocks, probe, samples, group, resident, affordable or not corners
    )  # fmt: skip


def _differ(samples: Samples) -> bool:
    """Say whether the samples executed clearly different numbers of instructions a block."""
    if len(samples) < 2:
        return False
    each = [_work(result) / len(chosen) for chosen, result in samples]
    return max(each) > (1 + UNEVEN) * min(each)


def _average(samples: Samples) -> float:
    """Return the warp instructions of a block of the samples."""
    each = [_work(result) / len(chosen) for chosen, result in samples]
    return sum(each) / max(1, len(each))


def _work(result: core.Result) -> float:
    """Return the warp instructions of a run."""
    return float(result.counters["warps"].sum())

"""Runs the blocks of a launch that stand for its grid, and says whether they do.

Random blocks give the counts (two disjoint samples, so that their difference shows), the blocks
that one SM would hold together give the L1, and the corners of the grid give the footprint.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ...gpus import Gpu
from ..occupancy import Occupancy
from ..run import core
from ..run.block_runs import SAMPLE_INSTRUCTIONS, BlockRuns
from ..run.candidate import KernelLaunch
from ..sass.sums import KernelCode
from . import block_choice as choose

UNEVEN = 0.005
"""Difference of two samples' instructions from which more blocks are sampled."""
MOST_UNEVEN = 192
"""Blocks in one random sample where blocks differ much in their work."""
OUTLIER = 16.0
"""How often an average block's work one block may do, where that is a tenth of the whole grid's."""
ALMOST_ALL = 0.75
"""Of the whole grid's work, what one of several blocks may do: a few blocks are an average too."""

Samples = Sequence[tuple[Sequence[int], core.Result]]
"""Blocks drawn at random, and what came of them."""


@dataclass(frozen=True)
class SampledRuns:
    """What ran of a launch, in the order of its making."""

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
        busiest = max(result.busiest_block for _, result in self.runner.uses)
        return max(1.0, busiest / self._average) if self._average else 1.0

    @property
    def _average(self) -> float:
        each = [_work(result) / len(chosen) for chosen, result in self.samples]
        return sum(each) / max(1, len(each))

    def too_uneven(self) -> bool:
        """Say whether one block does so much that the grid's work is not spread over the SMs.

        A grid may leave its work to a few blocks: the chance of drawing one of them is small, and
        the corners of the grid, where such a block mostly lies, are run beside the samples.
        """
        if not self.samples or self.blocks == 1:
            return False
        average = max(1.0, self._average)
        busiest = max(result.busiest_block for _, result in self.runner.uses)
        whole = self.blocks * average
        return busiest > max(OUTLIER * average, 0.1 * whole) or busiest > ALMOST_ALL * whole

    def takes_turns(self, machine: KernelCode | None) -> bool:
        """Say whether blocks take their work from a shared counter: then a few show nothing of all.

        The first block of a run finds all the work there, those after it find none left.
        """
        if machine is None or not machine.returns_atomics() or not self.samples:
            return False
        work = sum(_work(result) for _, result in self.samples)
        each = work / max(1, sum(len(chosen) for chosen, _ in self.samples))
        return _work(self.probe) > 8 * max(1.0, each)


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
    corners = [block for block in choose.corners(asked.launch.grid) if block not in runner.ran]
    affordable = cost < SAMPLE_INSTRUCTIONS
    if corners and affordable:
        runner.run(corners)
    return SampledRuns(
        runner, blocks, probe, samples, group, resident, affordable or not corners
    )  # fmt: skip


def _differ(samples: Samples) -> bool:
    """Say whether the samples executed clearly different numbers of instructions a block."""
    if len(samples) < 2:
        return False
    each = [_work(result) / len(chosen) for chosen, result in samples]
    return max(each) > (1 + UNEVEN) * min(each)


def _work(result: core.Result) -> float:
    """Return the warp instructions of a run."""
    return float(result.counters["warps"].sum())

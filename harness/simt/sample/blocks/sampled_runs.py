"""Runs the blocks of a launch that stand for its grid, and says whether they do.

Random blocks give the counts (two disjoint samples, so that their difference shows), the blocks
that one SM would hold together give the L1, and the corners of the grid give the footprint.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ....gpus import Gpu
from ....occupancy import Occupancy
from ...run import core
from ...run.block_runs import BlockRuns
from ...run.candidate import KernelLaunch
from . import block_choice as choose
from .effort import FULL, Effort

LARGEST_ERROR = 0.01
"""Relative standard error of the samples' instructions from which more blocks are sampled."""
MOST_TRIES = 16
"""Blocks, or SMs, that are looked at for one whose work is that of others."""
ALIKE = 0.1
"""Of the logarithm of work, what an SM's may differ in from that of others."""
IDLE = 4.0
"""How much less one is that does too little, for it says nothing of what the others read."""
OUTLIER = 16.0
"""How often an average block's work one block may do, where that is a tenth of the whole grid's."""
RARE = 1 / 8
"""Of a sample: where more blocks do far more than the others, these are no exception."""
ALMOST_ALL = 0.75
"""Of the whole grid's work, what one of several blocks may do: a few blocks are an average too."""
FEW_BLOCKS = 128
"""Up to as many of a grid, where they are little work, the one that is looked at closely hangs on
no draw."""
FEW_WORKING = 4
"""Blocks that work among the samples, of which fewer stand for no SM."""
LEAST_BUSY = 0.25
"""Of the SMs that a grid can fill, those that must have work, were it in equal parts."""

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

    def standard_error(self) -> float:
        """Return the relative standard error of the samples' instructions."""
        return _standard_error(self.samples, self.blocks)

    def sampled(self) -> list[int]:
        """Return the blocks of the samples, in the order of what came of them."""
        if sum(count for count, _ in self.runner.fresh) == self.blocks:
            return list(self.runner.work)
        return [block for chosen, _ in self.samples for block in chosen]

    def longest_block(self) -> float:
        """Return the work of the busiest block over an average block's."""
        busiest = max(int(result.work.max()) for _, result in self.runner.uses)
        average = _average(self.samples)
        return max(1.0, busiest / average) if average else 1.0

    def scale(self, instructions: Sequence[int], here: float) -> float:
        """Return the grid's sectors over those of the blocks of one SM, for some instructions.

        By what the random samples count, where both count any: the SM's blocks are few.

        Args:
            instructions: their indices.
            here: sectors of the SM's blocks.
        """
        rows = list(instructions)
        each = [
            float(result.counters["sectors"][rows].sum()) / len(chosen)
            for chosen, result in self.samples
        ]
        if here and any(each):
            return self.blocks * sum(each) / len(each) / here
        return self.blocks / len(self.group)

    def readers(self, sectors: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
        """Return about how many blocks read each of some sectors that this SM's blocks read.

        Where all have run it is known, and hangs on no draw.
        """
        if len(self.runner.ran) == self.blocks:
            every = [result for _, result in self.runner.fresh]
            every += [self.runner.rest] if self.runner.rest else []
            return np.maximum(1.0, sum(result.readers[sectors] for result in every))
        found, ran = np.zeros(len(sectors)), 0
        for chosen, result in self.samples:
            found += result.readers[sectors]
            ran += len(chosen)
        return 1 + found * (self.blocks / max(1, ran))

    def too_uneven(self) -> bool:
        """Say whether few blocks do so much that the grid's work is not spread over the SMs.

        A grid may leave its work to a few blocks: the chance of drawing one of them is small, and
        the corners of the grid, where such a block mostly lies, are run beside the samples.
        """
        if not self.samples or self.blocks == 1 or len(self.samples[0][0]) == self.blocks:
            # Where all have run the longest is known, and the model goes by it.
            return False
        return self._is_uneven()

    def lonely_block(self) -> int | None:
        """Return the block that does most of a grid of which few blocks do much, else None."""
        if not self.samples or self.blocks == 1 or not self._is_uneven():
            return None
        return max(sorted(self.runner.work), key=self.runner.work.__getitem__)

    def _is_uneven(self) -> bool:
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


def runs_all(work: npt.NDArray[np.int64], effort: Effort) -> bool:
    """Say whether a profile runs every block of a grid of such work, whichever are drawn.

    Or sees how much they differ: nothing is missed then.
    """
    return len(work) <= 2 or int(work.sum()) <= effort.complete


def run_samples(
    gpu: Gpu,
    asked: KernelLaunch,
    held: Occupancy,
    budget: int,
    generator: random.Random,
    outputs: Collection[int],
    effort: Effort = FULL,
) -> SampledRuns:
    """Choose blocks of a launch and run them; the arguments are `sample_launch`'s.

    Raises:
        LaunchFailed: a block did something that ends a launch, or ran too long.
    """
    blocks = asked.launch.block_count
    runner = BlockRuns(asked, budget, outputs)
    group: Sequence[int] = choose.group(gpu, blocks, max(1, held.blocks), generator)
    # A block may do less when it runs again on what it wrote: no block runs twice where the grid
    # is large enough.
    first = choose.fresh(blocks, 1, group, generator)
    probe = runner.run(first, trace=True)
    cost = max(1, int(_work(probe)))
    pair = choose.samples(
        blocks, max(1, effort.sample // cost), {*group, *first}, generator
    )  # fmt: skip
    samples: Samples = [(chosen, runner.run(chosen, random=True)) for chosen in pair if chosen]
    # Blocks that go by what others left are not sampled: all of them may do anything.
    if not runner.looks_at_others():
        samples = _sampled_further(runner, samples, blocks, group, generator, effort)
    group = group[: max(1, 2 * effort.sample // cost)]
    probe = _typical_block(runner, probe, samples, blocks, group, generator, effort)
    resident = probe
    if len(group) > 1 and (working := _working(samples)):
        group, resident = _working_group(gpu, runner, working, blocks, len(group), generator)
    elif len(group) > 1:
        group, resident = _typical_group(
            runner, group, _average(samples) if samples else cost,
            lambda: choose.group(gpu, blocks, max(1, held.blocks), generator), effort,
        )  # fmt: skip
    corners = [block for block in choose.corners(asked.launch.grid) if block not in runner.ran]
    affordable = cost < effort.sample
    if corners and affordable:
        runner.run(corners)
    if samples and sum(count for count, _ in runner.fresh) == blocks:
        samples = [(range(blocks), _joined(runner.fresh, probe, blocks))]
    return SampledRuns(
        gpu, runner, blocks, probe, samples, group, resident, affordable or not corners
    )  # fmt: skip


def hottest_atomic(probe: core.Result, result: core.Result, ran: int, blocks: int) -> float:
    """Return the atomics on the most contended sector of a grid, by one block and by `ran` of them.

    One sector may be shared by all blocks, or each block has its own: how the maximum grows from
    one block to the sample says which.
    """
    one, many = float(probe.hottest_atomic_sector), float(result.hottest_atomic_sector)
    if one <= 0 or many <= 0 or ran < 2:
        return many * (blocks / ran if ran else 1.0)
    growth = min(1.0, max(0.0, math.log(many / one) / math.log(ran)))
    return float(many * (blocks / ran) ** growth)


def _joined(
    fresh: Sequence[tuple[int, core.Result]], probe: core.Result, blocks: int
) -> core.Result:
    """Return what all blocks of a grid counted in the runs that were the first of each."""
    count, most = max(fresh, key=lambda run: run[0])
    counters = most.counters.copy()
    for name in counters.dtype.names or ():
        counters[name] = sum(result.counters[name] for _, result in fresh)
    return replace(
        most,
        blocks=blocks,
        counters=counters,
        hottest_atomic_sector=round(hottest_atomic(probe, most, count, blocks)),
        work=np.concatenate([result.work for _, result in fresh]),
        asked=np.concatenate([result.asked for _, result in fresh]),
        ways=np.concatenate([result.ways for _, result in fresh]),
    )


def _sampled_further(
    runner: BlockRuns,
    samples: Samples,
    blocks: int,
    group: Sequence[int],
    generator: random.Random,
    effort: Effort,
) -> Samples:
    """Run all blocks that are left but a group, where that is little work, or larger samples.

    Returns the samples to use from now on: larger ones take the place of those that there were.
    """
    taken = runner.ran.union(group)
    left = blocks - len(taken)
    if samples and left * _usual(samples) <= effort.complete:
        if rest := [block for block in range(blocks) if block not in taken]:
            runner.run(rest, random=True)
    elif (more := _enough(samples, blocks, left, effort)) > len(samples[0][0] if samples else ()):
        drawn = choose.fresh(blocks, 2 * more, taken, generator)
        halves = sorted(drawn[::2]), sorted(drawn[1::2])
        return [(chosen, runner.run(chosen, random=True)) for chosen in halves]
    return samples


def _enough(samples: Samples, blocks: int, left: int, effort: Effort) -> int:
    """Return how many of the blocks left each of two samples needs for a small error.

    Few where they are costly; none where the samples so far say enough.
    """
    error, taken = _standard_error(samples, blocks), sum(len(chosen) for chosen, _ in samples)
    if error <= LARGEST_ERROR:
        return 0
    needed = math.ceil(taken / 2 * (error / LARGEST_ERROR) ** 2)
    return min(needed, left // 2, int(effort.uneven / max(1.0, _average(samples))))


def _standard_error(samples: Samples, blocks: int) -> float:
    """Return the relative standard error of a block's instructions, by so many of all blocks.

    Neighbours in the sample are compared: each is drawn from its own part of the grid, so what the
    parts differ in is no chance.
    """
    each = sorted(
        (block, float(work))
        for chosen, result in samples
        for block, work in zip(chosen, result.work.tolist(), strict=True)
    )
    work = np.array([value for _, value in each])
    if len(work) < 2 or not work.any():
        return 0.0
    variance = float((np.diff(work) ** 2).sum()) / (2 * (len(work) - 1))
    missing = max(0.0, 1 - len(work) / blocks)
    return math.sqrt(variance / len(work) * missing) / float(work.mean())


def _typical_block(
    runner: BlockRuns,
    probe: core.Result,
    samples: Samples,
    blocks: int,
    group: Sequence[int],
    generator: random.Random,
    effort: Effort,
) -> core.Result:
    """Return a run of one block that is none of the few that do little or much: `probe` if it is.

    Another that has not run before, or else the one of the samples that is most like it.
    """
    if not samples:
        return probe
    left = blocks - len(runner.work)
    if blocks <= FEW_BLOCKS and left * _usual(samples) <= effort.complete:
        return _the_typical_block(runner, blocks)
    typical = _typical(samples)
    taken = runner.ran.union(group)
    tries = min(MOST_TRIES, blocks - len(taken))
    while not 0.5 * typical <= _work(probe) <= 2 * typical:
        if not tries:
            break
        tries -= 1
        (block,) = choose.fresh(blocks, 1, taken, generator)
        taken.add(block)
        probe = runner.run([block], trace=True)
    else:
        return probe
    known = {
        block: abs(float(work) - typical)
        for chosen, result in samples
        for block, work in zip(chosen, result.work.tolist(), strict=True)
    }
    return runner.run([min(known, key=known.__getitem__)], trace=True)


def _the_typical_block(runner: BlockRuns, blocks: int) -> core.Result:
    """Return a run of the block whose work is most like that of others, of all in the grid.

    Of several that do as much the first: where a block's part begins in a line says what it finds.
    """
    if left := [block for block in range(blocks) if block not in runner.work]:
        runner.run(left)
    work = runner.work
    total = max(1, sum(work.values()))
    typical = sum(each * each for each in work.values()) / total
    block = min(sorted(work), key=lambda each: abs(work[each] - typical))
    return runner.run([block], trace=True)


def _typical_group(
    runner: BlockRuns,
    group: Sequence[int],
    average: float,
    draw: Callable[[], Sequence[int]],
    effort: Effort,
) -> tuple[Sequence[int], core.Result]:
    """Return blocks of one SM, and their run, that do about as much each as an average block.

    Where idle blocks recur with the SMs, one of these may hold nothing else.
    """
    count, spent, best = len(group), 0.0, math.inf
    for _ in range(MOST_TRIES):
        result = runner.run(group, trace=True)
        work = _work(result)
        more = math.log(max(1.0, work) / (len(group) * average))
        unlike = more if more > 0 else -IDLE * more
        if unlike < best:
            best, found = unlike, (group, result)
        spent += work
        if best < ALIKE or spent > effort.uneven:
            break
        group = draw()[:count]
    return found


def _working(samples: Samples) -> float:
    """Return the least work of a block that is not idle; 0 where none is, or hardly one is not."""
    if not samples:
        return 0.0
    least = _typical(samples) / OUTLIER
    work = np.concatenate([result.work for _, result in samples])
    few = np.count_nonzero(work >= least) < FEW_WORKING
    return least if (work < least).any() and not few else 0.0


def _working_group(
    gpu: Gpu, runner: BlockRuns, least: float, blocks: int, count: int, generator: random.Random
) -> tuple[Sequence[int], core.Result]:
    """Return blocks that one SM holds together where idle ones leave at once, and their run.

    Args:
        gpu: the GPU.
        runner: has run some blocks.
        least: work of a block that is not idle.
        blocks: of the grid.
        count: blocks that an SM holds.
        generator: draws one of them.
    """
    left = [block for block in range(blocks) if block not in runner.work]
    if 0 < len(left) <= count:
        runner.run(left)
    known = sorted(block for block, work in runner.work.items() if work >= least)
    if len(runner.work) < blocks:
        first = generator.choice(known)
        near = [first % gpu.sms + gpu.sms * turn for turn in range(-(-blocks // gpu.sms))]
        at = near.index(first)
        asked = [block for block in near[at : at + 4 * count] if block < blocks]
        work = runner.run(asked, trace=True).work.tolist()
        known = [block for block, each in zip(asked, work, strict=True) if each >= least]
        group = known[:count]
    else:
        turns = known[:: gpu.sms]  # all are known: what is found hangs on no draw
        start = max(0, len(turns) - count) // 2
        group = turns[start : start + count]
    return group, runner.run(group, trace=True)


def _typical(samples: Samples) -> float:
    """Return the instructions of the block that an average instruction belongs to."""
    work = np.concatenate([result.work for _, result in samples]).astype(np.float64)
    return float((work**2).sum() / max(1.0, float(work.sum())))


def _average(samples: Samples) -> float:
    """Return the warp instructions of a block of the samples."""
    each = [_work(result) / len(chosen) for chosen, result in samples]
    return sum(each) / max(1, len(each))


def _usual(samples: Samples) -> float:
    """Return the warp instructions of a block of the samples but for few that do far more.

    Whether one of these was drawn must not decide whether the others, which were not, are run.
    """
    each = np.concatenate([result.work for _, result in samples])
    usual = each <= OUTLIER * max(1.0, float(np.median(each)))
    return float((each[usual] if usual.mean() > 1 - RARE else each).mean())


def _work(result: core.Result) -> float:
    """Return the warp instructions of a run."""
    return float(result.counters["warps"].sum())

"""Estimates what the whole grid writes of each allocation, from the blocks that ran."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...judge.reports import Written
from ..run.block_runs import SECTOR, BlockRuns
from . import block_choice as choose

Atomics = dict[int, list[npt.NDArray[np.int64]]]
"""Sectors that atomics touched, from the start of each allocation, by the allocation's place."""
ALL = 0.999
"""Of an output: where the sampled blocks write no less for their part of the grid, it is whole."""
ERRORS, MOST_ERROR = 3, 0.2
"""Standard errors that an estimate is raised by, and the part of it that they come to at most."""
MOST_EXTRA_BATCHES = 8
"""Further random samples where the first seem to leave part of an output unwritten."""
LEAST_BEGUN, BEGUN = 16, 1 / 8
"""Instructions of each warp, and the part of a usual block's, up to which all blocks are begun."""
FEW_LONG = 8
"""Blocks that are run to know those that go on, where no sample has one."""


@dataclass(frozen=True)
class Short:
    """The blocks of a grid that end after little work: these are counted, and not estimated."""

    limit: int
    """Warp instructions that they end within, about; in a sample who did more is none of them."""
    count: int
    written_bytes: Mapping[int, float]
    """What they write of each output, by its place."""
    others: npt.NDArray[np.int64]
    """Blocks that go on, ascending."""


NONE = Short(-1, 0, {}, np.zeros(0, dtype=np.int64))
"""Where it is not known which are short: the random samples tell how many."""


def written_of(
    runner: BlockRuns,
    blocks: int,
    cost: int,
    generator: random.Random,
    outputs: Mapping[int, int],
    budget: int,
    *,
    thorough: bool = False,
) -> dict[int, Written]:
    """Return `LaunchCounters.written`, looking closer where an output seems incomplete.

    Then all blocks of the grid are begun, so that those are known that end at once, as those do
    that are of no use and those that leave out what is theirs; and further samples are run.

    Args:
        runner: the blocks that ran, with what each wrote of the outputs.
        blocks: blocks of the grid.
        cost: warp instructions of a usual one.
        generator: chooses further blocks.
        outputs: bytes of each output, by its place.
        budget: warp instructions that looking closer may take, for each of its two ways.
        thorough: begin all blocks whatever the samples say.
    """
    spent, everything = 0, blocks <= sum(count for count, _ in runner.fresh)
    size, short = min(64, blocks), NONE
    if thorough and not everything:
        short = _short(runner, blocks, cost, outputs, budget)
    for batch in range(MOST_EXTRA_BATCHES):
        told = {place: _random_bytes(runner, place, blocks, short, errors=0) for place in outputs}
        if everything or all(not told[at] or told[at] >= ALL * outputs[at] for at in outputs):
            break
        if not batch:
            short = short if thorough else _short(runner, blocks, cost, outputs, budget)
            if 0 < short.others.size and not _long(runner, short):
                runner.run(_drawn(runner, short, blocks, FEW_LONG, generator), random=True)
                continue
        if spent + size * cost > budget:
            break
        runner.run(_drawn(runner, short, blocks, size, generator), random=True)
        spent += size * cost
    found = {}
    ran = len(runner.ran)
    widening = 1 / choose.least_range(ran) if ran < blocks else 1.0
    for place, (first, end) in runner.written_ranges().items():
        start = runner.asked.memory.starts[place]
        found[place] = Written(
            grid_bytes=(
                runner.written_bytes[place] if everything
                else _random_bytes(runner, place, blocks, short)
            ),
            sampled_bytes=runner.written_bytes[place],
            first=first - start,
            end=end - start,
            span=widening * (end - first),
        )
    return found


def note_atomics(runner: BlockRuns, outputs: Mapping[int, int], atomics: Atomics | None) -> None:
    """Add what atomics of this launch touched of each output, where that is asked for."""
    if atomics is None:
        return
    for place in outputs:
        if (touched := runner.atomics(place)).size:
            atomics.setdefault(place, []).append(touched)


def _short(
    runner: BlockRuns, blocks: int, cost: int, outputs: Mapping[int, int], budget: int
) -> Short:
    """Begin all blocks of the grid, and return those that end; NONE where it is too much work."""
    warps = -(-math.prod(runner.asked.launch.block) // 32)
    limit = min(int(BEGUN * cost), budget // blocks)
    result = runner.begun(range(blocks), limit) if limit >= LEAST_BEGUN * warps else None
    if result is None:
        return NONE
    ended = result.work <= limit
    written = {
        place: SECTOR * float(result.stored[ended, column].sum())
        for column, place in enumerate(runner.followed)
    }
    return Short(limit, int(ended.sum()), written, np.flatnonzero(~ended))


def _long(runner: BlockRuns, short: Short) -> bool:
    return any((result.work > short.limit).any() for _, result in runner.random)


def _drawn(
    runner: BlockRuns, short: Short, blocks: int, count: int, generator: random.Random
) -> list[int]:
    """Return blocks that have not run, where there are enough; of those that go on, if known."""
    if not short.others.size:
        return choose.fresh(blocks, min(count, blocks), runner.ran, generator)
    others = short.others.tolist()
    fresh = [block for block in others if block not in runner.ran] or others
    return generator.sample(fresh, min(count, len(fresh)))


def _random_bytes(
    runner: BlockRuns, place: int, blocks: int, short: Short, errors: int = ERRORS
) -> float:
    """Return what the whole grid writes of an allocation by the random samples.

    Standard errors are added, so that an honest kernel whose blocks differ is not taken for one
    that leaves work out, but no more than a fifth: beyond that nothing can be said.
    """
    if place in runner.followed:
        column = runner.followed.index(place)
        long = [result.stored[result.work > short.limit, column] for _, result in runner.random]
        each, weights = np.concatenate(long).astype(np.float64) * SECTOR, None
    else:  # Known of each sample alone.
        short = NONE
        weights = np.array([count for count, _ in runner.random], dtype=np.float64)
        each = np.array([
            SECTOR * result.uses[place].block_written_sectors if place in result.uses else 0
            for _, result in runner.random
        ]) / weights  # fmt: skip
    rest, known = blocks - short.count, short.written_bytes.get(place, 0.0)
    if not each.size:
        return known
    mean, error = float(np.average(each, weights=weights)), 0.0
    if each.size > 1:
        ran = each.size if weights is None else float(weights.sum())
        variance = float(np.average((each - mean) ** 2, weights=weights)) / (each.size - 1)
        error = math.sqrt(variance * max(0.0, 1 - ran / max(1, rest)))
    return known + rest * (mean + min(errors * error, MOST_ERROR * mean))

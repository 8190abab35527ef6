"""Estimates what the whole grid writes of each allocation, from the blocks that ran."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ...judge.reports import Written
from ..run.block_runs import BlockRuns
from . import block_choice as choose
from .effort import FULL, Effort

Atomics = dict[int, list[npt.NDArray[np.int64]]]
"""Sectors that atomics touched, from the start of each allocation, by the allocation's place."""
MOST_EXTRA_BATCHES = 8
"""Further random samples where the first seem to leave part of an output unwritten."""


def written_of(
    runner: BlockRuns,
    blocks: int,
    cost: int,
    generator: random.Random,
    outputs: Mapping[int, int],
    effort: Effort = FULL,
) -> dict[int, Written]:
    """Return `LaunchCounters.written`, running further blocks where an output seems incomplete."""
    spent, everything = 0, blocks <= sum(count for count, _ in runner.random)
    size = min(64, blocks)
    for _ in range(MOST_EXTRA_BATCHES):
        short = any(
            0 < _random_bytes(runner, place, blocks) < 0.9 * nbytes
            for place, nbytes in outputs.items()
        )
        if everything or not short or spent + size * cost > effort.sample:
            break
        runner.run(choose.fresh(blocks, size, runner.ran, generator), random=True)
        spent += size * cost
    found = {}
    ran = len(runner.ran)
    widening = 1 / choose.least_range(ran) if ran < blocks else 1.0
    for place, (first, end) in runner.written_ranges().items():
        start = runner.asked.memory.starts[place]
        found[place] = Written(
            grid_bytes=_random_bytes(runner, place, blocks),
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


def _random_bytes(runner: BlockRuns, place: int, blocks: int) -> float:
    """Return what the whole grid writes of an allocation by the random samples.

    Two standard errors are added, so that an honest kernel whose blocks differ is not taken for
    one that leaves work out, but no more than a fifth: beyond that nothing can be said.
    """
    counts = [count for count, _ in runner.random]
    each = [
        result.uses[place].block_written_sectors * 32.0 if place in result.uses else 0.0
        for _, result in runner.random
    ]
    ran = sum(counts)
    mean = sum(each) / ran
    error = 0.0
    if len(each) > 1:
        spread = sum(n * (total / n - mean) ** 2 for n, total in zip(counts, each, strict=True))
        error = math.sqrt(spread / (len(each) - 1) / ran)
    return blocks * (mean + min(2 * error, 0.2 * mean))

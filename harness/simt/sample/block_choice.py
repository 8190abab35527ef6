"""Chooses which blocks of a grid to run: random samples, the blocks of one SM, the corners."""

from __future__ import annotations

import random
from collections.abc import Collection

from ...gpus import Gpu

MOST_BLOCKS = 64
"""Blocks in one random sample at most."""
MOST_GROUP = 32

BAD_LUCK = 0.005
"""Chance that is accepted of taking an honest kernel for one that leaves out part of an output."""


def samples(
    blocks: int, affordable: int, taken: Collection[int], generator: random.Random
) -> tuple[list[int], list[int]]:
    """Return two disjoint random samples; one and none where the grid has a single block."""
    count = min(MOST_BLOCKS, affordable, blocks // 2)
    if count == 0:
        return list(range(blocks)), []
    chosen = fresh(blocks, 2 * count, taken, generator)
    return sorted(chosen[::2]), sorted(chosen[1::2])


def fresh(
    blocks: int, count: int, taken: Collection[int], generator: random.Random
) -> list[int]:
    """Return random blocks, none of those taken where there are enough others.

    The grid is cut into as many parts, and one is drawn from each where that is not taken: what
    hangs on where a block lies, as in a triangle, varies less between such samples.
    """
    if blocks - len(taken) < count:
        return generator.sample(range(blocks), count)
    part = blocks / count
    drawn = (min(blocks - 1, int(part * (i + generator.random()))) for i in range(count))
    chosen = dict.fromkeys(block for block in drawn if block not in taken)
    if len(chosen) < count:
        others = generator.sample(range(blocks), min(blocks, 2 * count + len(taken)))
        chosen.update(dict.fromkeys(block for block in others if block not in taken))
    return list(chosen)[:count]


def group(gpu: Gpu, blocks: int, resident: int, generator: random.Random) -> list[int]:
    """Return blocks that one SM would hold at the same time, in a full wave of the grid.

    Where the grid has none, one of the SMs that hold the most: they differ by one, and the times
    that are said of the group would hang on which was drawn.
    """
    wave = gpu.sms * resident
    start = generator.randrange(1, blocks // wave) * wave if blocks > 2 * wave else 0
    most = (blocks - start) % gpu.sms if blocks - start < wave else 0
    sm = generator.randrange(most or min(gpu.sms, blocks))
    group = [start + sm + gpu.sms * turn for turn in range(min(resident, MOST_GROUP))]
    return [block for block in group if block < blocks] or [blocks - 1]


def corners(grid: tuple[int, int, int]) -> list[int]:
    x, y, z = grid
    last = x * y * z - 1
    return list(dict.fromkeys([0, last, x - 1, last - (x - 1)]))


def least_range(count: int) -> float:
    """Return how much of a whole interval so many random points span, but for bad luck.

    The range R of n uniform points has P(R <= r) = n r^(n-1) - (n-1) r^n (order
    statistics). Few blocks, which is all that a costly kernel is given, say little of it.
    """
    if count < 2:
        return BAD_LUCK
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        chance = count * middle ** (count - 1) - (count - 1) * middle**count
        low, high = (middle, high) if chance < BAD_LUCK else (low, middle)
    return high

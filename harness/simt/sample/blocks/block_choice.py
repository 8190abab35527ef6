"""Chooses which blocks of a grid to run: random samples, those of one SM, corners, neighbours."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence
from typing import NamedTuple

from ....gpus import Gpu
from ...run.orders import mixed_order

MOST_BLOCKS = 64
"""Blocks in each of the first random samples at most; `sampled_runs` draws larger ones."""
MOST_GROUP = 32
MOST_IN_A_ROW, MOST_BEHIND = 32, 16
"""Neighbours that run together where not all blocks do, and those behind each other along an axis;
more of these where they are affordable."""
APART = 4
"""One of so many blocks is drawn by itself: neighbours do not tell what the whole grid writes."""

MOST_STRETCHES, LEAST_STRETCH = 4, 16
"""Pieces along an axis in which blocks run that join what those next to them do, and how often one
is as long as blocks reach."""

SOME_OF_A_RIM = 2
"""Blocks on each rim of a grid that run beside its corners."""

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


def rims(grid: tuple[int, int, int]) -> list[list[int]]:
    """Return the blocks on each line along an axis through the first block or through the last."""
    return [
        [
            index_of(grid, [step if each == axis else place for each, place in enumerate(end)])
            for step in range(extent)
        ]
        for end in ([0, 0, 0], [extent - 1 for extent in grid])
        for axis, extent in enumerate(grid)
    ]


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


class Joining(NamedTuple):
    """Along which axis of a grid blocks join an output, and how far apart those are at most."""

    axis: int
    reach: int


class Together(NamedTuple):
    """Which blocks of a grid run together."""

    near: list[int]
    """Those that run with their neighbours."""
    alone: Sequence[int] = ()
    """Those that were drawn by themselves."""
    beside: Sequence[int] = ()
    """Those that do not run, and join something with some that do."""


def together(
    grid: tuple[int, int, int], count: int, joining: Joining | None, generator: random.Random
) -> Together:
    """Return so many blocks of a grid: rows of neighbours with all behind them, and single ones.

    What later launches join is mostly spread over the last axis, or lies side by side. The corners
    and some on the rims run, too, as those may that write an output which no others do. Where
    blocks join an output along an axis, single ones would leave parts of sums: all along it run, or
    stretches of it that are long beside how far blocks reach.
    """
    blocks = math.prod(grid)
    if count >= blocks:
        return Together(mixed_order(grid, generator))
    if joining and joining.reach + 1 < grid[joining.axis]:
        return _stretches(grid, count, joining, generator)
    alone = count // APART if joining is None else 0
    axis = 2 if joining is None else joining.axis
    row = 1 if axis == 0 else 0
    behind = grid[axis] if grid[axis] <= max(MOST_BEHIND, count - alone) else 1
    wide = min(grid[row], max(1, min(MOST_IN_A_ROW, (count - alone) // (4 * behind))))
    chosen: dict[int, None] = {}
    while not chosen or len(chosen) + behind * wide <= count - alone:
        at = [generator.randrange(extent) for extent in grid]
        at[row] -= at[row] % wide
        for step in range(behind):
            at[axis] = step if behind > 1 else at[axis]
            for beside in range(min(wide, grid[row] - at[row])):
                chosen[index_of(grid, at) + beside * (grid[0] if row else 1)] = None
    if joining is None:
        some = [
            block for line in rims(grid)
            for block in generator.sample(line[1:-1], min(SOME_OF_A_RIM, len(line[1:-1])))
        ]  # fmt: skip
        chosen |= dict.fromkeys([*corners(grid), *some])
    alone = min(alone, blocks - len(chosen))
    return Together(list(chosen), fresh(blocks, alone, chosen, generator) if alone else [])


def _stretches(
    grid: tuple[int, int, int], count: int, joining: Joining, generator: random.Random
) -> Together:
    axis, reach = joining
    pieces = max(1, min(MOST_STRETCHES, count // (LEAST_STRETCH * reach)))
    length = min(grid[axis], max(1, count // pieces))
    chosen: dict[int, None] = {}
    beside: dict[int, None] = {}
    while not chosen or len(chosen) + length <= count:
        at = [generator.randrange(extent) for extent in grid]
        first = generator.randrange(grid[axis] - length + 1)
        for step in range(max(0, first - reach), min(grid[axis], first + length + reach)):
            at[axis] = step
            found = chosen if first <= step < first + length else beside
            found[index_of(grid, at)] = None
    left = [block for block in beside if block not in chosen]
    return Together(list(chosen), beside=left)


def index_of(grid: tuple[int, int, int], at: Sequence[int]) -> int:
    """Return the linear index of a block."""
    return at[0] + grid[0] * (at[1] + grid[1] * at[2])

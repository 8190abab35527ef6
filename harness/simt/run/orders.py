"""The order in which blocks run whose results must not hang on it."""

from __future__ import annotations

import random

MOST_TOGETHER = 8
"""Blocks of one group."""


def mixed_order(grid: tuple[int, int, int], generator: random.Random) -> list[int]:
    """Return all blocks of a grid in no particular order, but neighbours along an axis together.

    Blocks that have to do with each other are mostly neighbours along one axis or another, and only
    blocks that are under way at one time can disturb each other.
    """
    x, y, z = grid
    count = x * y * z
    lines = [(step, width) for step, width in ((1, x), (x, y), (x * y, z)) if width > 1]
    if not lines:
        return list(range(count))
    left = bytearray(b"\1") * count
    order: list[int] = []
    for first in generator.sample(range(count), count):
        if not left[first]:
            continue
        step, width = generator.choice(lines)
        end = first + step * min(MOST_TOGETHER, width - first // step % width)
        group = [block for block in range(first, end, step) if left[block]]
        for block in group:
            left[block] = 0
        generator.shuffle(group)
        order += group
    return order

"""Looks for races at full dimensions, in a few neighbouring blocks as far as a budget goes.

What such blocks do is taken back: nothing else of the run sees that they ran.
"""

from __future__ import annotations

import random
from collections.abc import Set

from ...run import core
from ...run.block_runs import places_read
from ...run.candidate import KernelLaunch
from .effort import FULL

LARGEST_ARENA = 6 << 30
"""Bytes of device memory up to which accesses can be noted, at twelve bytes of address space for
each."""
MOST_GROUPS = 4
MOST_DEPENDENT = 8
"""Blocks of a launch that runs whole, whose blocks share out their work."""


def neighbours(asked: KernelLaunch, budget: int, generator: random.Random) -> list[int]:
    """Return a random block and those beside it along each axis of the grid.

    A larger budget is for several such groups.
    """
    x, y, z = asked.launch.grid
    steps = [step for step, width in ((1, x), (x, y), (x * y, z)) if width > 1]
    around: dict[int, None] = {}
    for _ in range(max(1, min(MOST_GROUPS, budget // FULL.races))):
        first = generator.randrange(x * y * z)
        around |= dict.fromkeys([first, *((first + step) % (x * y * z) for step in steps)])
    return list(around)


def races(
    asked: KernelLaunch, blocks: list[int], budget: int, seed: int, incomplete: Set[int]
) -> tuple[list[core.Report], int]:
    """Run blocks with all checks, warps in another order, and take back what they did.

    Args:
        asked: the launch.
        blocks: which; they take turns.
        budget: warp instructions after which the look ends.
        seed: of the order of warps; not 0.
        incomplete: places of allocations of which some blocks are missing: who goes by what
            nobody wrote there is accused of nothing.

    Returns the races, and how many blocks were looked at.
    """
    if asked.memory.size > LARGEST_ARENA:
        return [], 0
    result = core.run(
        asked.launch, asked.memory, blocks, checks=True, seed=seed, max_instructions=budget,
        keep=True, fair=True,
    )  # fmt: skip
    core.take_back(result)
    if places_read(result) & incomplete:
        return [], 0
    found = [
        report
        for report in result.reports
        if report.kind == "race"
        or (report.kind == "uninitialized_read" and report.space == "shared")
    ]
    return found, int((result.work > 0).sum())

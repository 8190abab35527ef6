"""How long blocks take that do unlike things: what the quick ones do hides nothing of the others.

A block that only computes takes no time of one that waits for memory, though their average does. So
each kind of block, by the ways that it came through the kernel and by how much it asks of memory,
is followed by one of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...counters import Level
from ...sass.sums import KernelCode
from ..instructions.slowest_warp import slowest_path
from .sampled_runs import SampledRuns

ALIKE = 0.02
"""Blocks that take so much less than the longest of some are of the same level."""
FAR_LESS = 0.5
MOST_LEVELS = 48
MOST_KINDS = 8
"""Kinds of which a block is followed; others take as long as their work, by an average block."""
ASKING = 2.0
"""By what factor the requests of an instruction differ between kinds."""


def levels(values: npt.NDArray[np.float64], blocks: int) -> list[Level]:
    """Return how many of a grid's blocks have which value at least, by the values of some.

    Args:
        values: of each of some blocks that stand for the grid.
        blocks: blocks of the grid.
    """
    falling = np.sort(values)[::-1]
    weight = blocks / len(falling)
    found: list[Level] = []
    first = 0
    alike = ALIKE
    while first < len(falling):
        last = int(np.searchsorted(-falling, -(1 - alike) * falling[first], side="right"))
        last = max(last, first + 1)
        # Where others do far less, up to one more of these lies between two blocks that are known.
        ends = last < len(falling) and falling[last] < FAR_LESS * falling[last - 1]
        count = min(float(blocks), weight * last + ends * (weight - 1))
        found.append((count, float(falling[first:last].mean())))
        first = last
        if len(found) == MOST_LEVELS:  # begin again, with wider steps
            found, first, alike = [], 0, 2 * alike
    return found


def asking_blocks(runs: SampledRuns) -> float:
    """Return as how many equal blocks those of the grid ask memory: idle ones do not count."""
    asked = np.concatenate([result.asked for _, result in runs.samples or [((), runs.probe)]])
    each = asked.astype(np.float64)
    most = float((each**2).sum())
    return runs.blocks * float(each.sum()) ** 2 / most / len(each) if most else float(runs.blocks)


@dataclass(frozen=True)
class Each:
    """What each sampled block takes, in the order of the samples."""

    instructions: npt.NDArray[np.float64]
    """Warp instructions: the machine's where blocks of several kinds were followed, else PTX's."""
    clocks: npt.NDArray[np.float64] | None = None
    """Clocks of the block alone; None where all blocks are of one kind."""


def each_block(
    runs: SampledRuns,
    machine: KernelCode | None,
    warps: float,
    chain: Callable[[list[float], float], float],
) -> Each:
    """Return what each sampled block takes.

    Args:
        runs: the blocks that ran.
        machine: the kernel's machine code, if it is known.
        warps: warps of a block.
        chain: clocks of an average of so many warps that went through the machine's blocks so
            often.
    """
    results = [result for _, result in runs.samples] or [runs.probe]
    work = np.concatenate([result.work for result in results]).astype(np.float64)
    asked = np.concatenate([result.asked for result in results]).astype(np.float64)
    kinds = _kinds(work, asked, np.concatenate([result.ways for result in results]))
    if machine is None or len(kinds) == 1 or not runs.samples:
        return Each(work)
    names = runs.sampled()
    module = runs.runner.asked.launch.module
    clocks, instructions = np.zeros((2, len(work)))
    for kind in kinds[:MOST_KINDS]:
        longest = max(kind, key=lambda place: (work[place], -names[place]))
        alone = runs.runner.alone(names[longest])
        executions = machine.executions(alone, 1.0, warps)
        takes = chain(executions, warps)
        takes *= slowest_path(module, alone, warps, machine, chain).delay
        share = work[kind] / max(1.0, work[longest])
        clocks[kind] = takes * share
        instructions[kind] = machine.issued(executions) * share
    if rest := [block for kind in kinds[MOST_KINDS:] for block in kind]:
        known = np.setdiff1d(np.arange(len(work)), rest)
        for values in (clocks, instructions):
            values[rest] = work[rest] * values[known].sum() / work[known].sum()
    return Each(instructions, clocks)


def _kinds(
    work: npt.NDArray[np.float64], asked: npt.NDArray[np.float64], ways: npt.NDArray[np.uint64]
) -> list[list[int]]:
    """Return the places of blocks that are alike, those first that are most work together."""
    found: dict[tuple[int, int], list[int]] = {}
    share = asked / np.maximum(1.0, work)
    usual = float(np.median(share[share > 0])) if share.any() else 1.0
    with np.errstate(divide="ignore"):
        steps = np.where(share > 0, np.rint(np.log(share / usual) / np.log(ASKING)), -99.0)
    for place, key in enumerate(zip(ways.tolist(), steps.astype(int).tolist(), strict=True)):
        found.setdefault(key, []).append(place)
    return sorted(found.values(), key=lambda kind: -float(work[kind].sum()))

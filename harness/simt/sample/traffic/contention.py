"""On which lines of memory the atomics of a launch wait for each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...model.time_model import CONTENDED_LINES
from ...run.block_runs import BlockRuns
from ..blocks.sampled_runs import SampledRuns


class Contention(NamedTuple):
    """The lines on which atomics take longest, few that are hot or all that there are."""

    contended_lines: float
    contended_share: float
    """Of all turns that atomics take, those on these lines."""


def contention_of(runner: BlockRuns) -> Contention:
    """Return where the atomics of all runs of a launch take longest.

    More atomics on other lines change nothing about those: a kernel gains nothing by them.
    """
    sectors, turns = runner.atomic_turns()
    if not turns.size:
        return Contention(0.0, 1.0)
    _, line_of = np.unique(sectors >> 2, return_inverse=True)
    hottest_first = np.cumsum(np.sort(np.bincount(line_of, weights=turns))[::-1])
    taken = hottest_first / np.arange(1.0, len(hottest_first) + 1.0) ** CONTENDED_LINES
    most = int(np.argmax(taken))
    return Contention(most + 1.0, float(hottest_first[most] / hottest_first[-1]))


def turns_of_all_blocks(runs: SampledRuns) -> float:
    """Return the grid's turns on the hottest sector that every sampled run touched, the probe too.

    What block after block goes to grows with the grid, whatever each does on sectors of its own.
    """
    sectors, turns = runs.probe.atomics()
    rates = turns.astype(float)
    for chosen, result in runs.samples:
        touched, turns = result.atomics()
        sectors, mine, theirs = np.intersect1d(
            sectors, touched, assume_unique=True, return_indices=True
        )
        rates = np.minimum(rates[mine], turns[theirs] / len(chosen))
    return runs.blocks * float(rates.max(initial=0.0))

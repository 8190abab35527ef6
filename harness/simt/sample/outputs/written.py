"""Estimates what the whole grid writes of each allocation, from the blocks that ran."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....judge.reports import Written
from ...run.block_runs import SECTOR, BlockRuns
from ...run.core import Result
from ..blocks import block_choice as choose

Atomics = dict[int, list[npt.NDArray[np.int64]]]
"""Sectors that atomics touched, from the start of each allocation, by the allocation's place."""
ALL = 0.999
"""Of an output: where the sampled blocks write no less for their part of the grid, it is whole."""
ERRORS = 3
"""Standard errors that an estimate is raised by."""
FEW, ERROR_OF_FEW = 4, 0.25
"""Fewer blocks than these do not tell how much they differ: an estimate is raised by so much."""
MOST_EXTRA_BATCHES = 8
"""Further random samples where the first seem to leave part of an output unwritten."""
LEAST_BEGUN, BEGUN = 16, 1 / 8
"""Instructions of each warp, and the part of a usual block's, up to which all blocks are begun."""
AT_A_TIME = 8192
"""Blocks that are begun together: what they overwrite is remembered meanwhile."""
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
    that are of no use and those that leave out what is theirs; and further samples are looked at.

    Args:
        runner: the blocks that ran, with what each wrote of the outputs.
        blocks: blocks of the grid.
        cost: warp instructions of a usual one.
        generator: chooses further blocks.
        outputs: bytes of each output, by its place.
        budget: warp instructions that looking closer may take, for each of its two ways.
        thorough: begin all blocks whatever the samples say.

    Raises LaunchFailed: a block that is looked at fails.
    """
    everything = blocks <= sum(count for count, _ in runner.fresh)
    sampled = [result for _, result in runner.random]
    short = _short(runner, blocks, cost, budget) if thorough and not everything else NONE
    began: int | None = None
    while not everything and not _is_whole(runner, sampled, short, blocks, outputs):
        if began is None:
            short = short if thorough else _short(runner, blocks, cost, budget)
            began, usual = runner.spent, cost
        few = bool(short.others.size) and not any(
            (result.work > short.limit).any() for result in sampled
        )
        size = FEW_LONG if few else min(64, blocks)
        drawn = _drawn(runner, short, blocks, size, generator)
        usual = max(usual, *(int(result.work.max()) for result in sampled), 1)
        affordable = (began + budget - runner.spent) // usual
        if not drawn or not budget or (affordable < size and not few):
            break
        looked = runner.looked_at(drawn[: max(1, affordable)])
        if looked is None or len(sampled) >= len(runner.random) + MOST_EXTRA_BATCHES:
            break
        sampled.append(looked)
    found = {}
    ran = len(runner.ran)
    rims = _by_rims(runner, sampled, budget // max(1, cost)) if thorough and not everything else {}
    widening = 1 / choose.least_range(ran) if ran < blocks else 1.0
    for place, (first, end) in runner.written_ranges().items():
        start = runner.asked.memory.starts[place]
        known = runner.written_bytes[place] if everything else rims.get(place, 0.0)
        estimate = known or _grid_bytes(runner, sampled, place, blocks, short)
        likely = known
        if not known and _is_told(runner, sampled, place):
            likely = _grid_bytes(runner, sampled, place, blocks, short, errors=0)
        found[place] = Written(
            grid_bytes=estimate,
            raised=estimate - likely,
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


def joined_by(
    runner: BlockRuns, block: int, outputs: Collection[int]
) -> dict[int, npt.NDArray[np.int64]]:
    """Return the sectors of outputs that atomics of a block touch, from the start of each; nothing
    of it stays. Raises LaunchFailed."""
    uses = runner.alone(block).uses
    return {
        place: touched - runner.first_sector(place) for place in outputs
        if place in uses and (touched := uses[place].atomic_sectors).size
    }  # fmt: skip


def note_open(
    runner: BlockRuns, beside: Sequence[int], outputs: Collection[int], found: Atomics
) -> None:
    """Add what blocks that do not run would touch by atomics of each output; raises LaunchFailed.
    """
    for block in beside:
        for place, touched in joined_by(runner, block, outputs).items():
            found.setdefault(place, []).append(touched)


def _is_whole(
    runner: BlockRuns, sampled: Sequence[Result], short: Short, blocks: int,
    outputs: Mapping[int, int],
) -> bool:  # fmt: skip
    """Say whether by the samples the whole grid leaves nothing out of an output that is its own.

    Where no block has written anything yet, it is not known which these are.
    """
    ranges = runner.written_ranges()
    own = [place for place in outputs if place in ranges or short.written_bytes.get(place)]
    return bool(ranges) and all(
        _grid_bytes(runner, sampled, place, blocks, short, errors=0) >= ALL * outputs[place]
        for place in own
    )


def _short(runner: BlockRuns, blocks: int, cost: int, budget: int) -> Short:
    """Begin all blocks of the grid, and return those that end; NONE where it is too much work."""
    limit = min(int(BEGUN * cost), budget // blocks)
    if limit < LEAST_BEGUN * runner.asked.launch.block_warps:
        return NONE
    count, written, others = 0, np.zeros(len(runner.followed)), []
    for first in range(0, blocks, AT_A_TIME):
        begun = range(first, min(blocks, first + AT_A_TIME))
        result = runner.looked_at(begun, limit)
        if result is None:
            return NONE
        ended = result.work <= limit
        count += int(ended.sum())
        # What several blocks write is written once.
        uses = [result.uses.get(place) for place in runner.followed]
        most = [SECTOR * use.written_sectors if use else 0 for use in uses]
        written += np.minimum(result.stored[ended].sum(axis=0, dtype=np.float64), most)
        others.append(first + np.flatnonzero(~ended))
    by_place = dict(zip(runner.followed, written.tolist(), strict=True))
    return Short(limit, count, by_place, np.concatenate(others))


def _by_rims(
    runner: BlockRuns, sampled: Sequence[Result], affordable: int
) -> dict[int, float]:
    """Return what blocks on the rims of the grid write of what is written, and no sample tells of.

    Such are outputs that only the first or the last of many rows is for.
    """
    columns = {
        place: column for column, place in enumerate(runner.followed)
        if place in runner.written_ranges() and not _is_told(runner, sampled, place)
    }  # fmt: skip
    rims = sorted({block for line in choose.rims(runner.asked.launch.grid) for block in line})
    result = runner.looked_at(rims) if columns and len(rims) <= affordable else None
    if result is None:
        return {}
    stored = result.stored.sum(axis=0, dtype=np.float64)
    return {place: float(stored[column]) for place, column in columns.items()}


def _is_told(runner: BlockRuns, sampled: Sequence[Result], place: int) -> bool:
    """Say whether any block that was drawn writes to an allocation."""
    if place not in runner.followed:
        return any(place in result.uses for result in sampled)
    column = runner.followed.index(place)
    return any(result.stored[:, column].any() for result in sampled)


def _drawn(
    runner: BlockRuns, short: Short, blocks: int, count: int, generator: random.Random
) -> list[int]:
    """Return blocks that have not run, some of those that go on where these are known."""
    if not short.others.size:
        free = blocks - len(runner.ran)
        return choose.fresh(blocks, min(count, free), runner.ran, generator) if free else []
    fresh = [block for block in short.others.tolist() if block not in runner.ran]
    return generator.sample(fresh, min(count, len(fresh)))


def _not_drawn(runner: BlockRuns, short: Short, column: int) -> npt.NDArray[np.uint32]:
    """Return the bytes of a followed allocation that each block wrote which ran undrawn, the short
    ones left out."""
    drawn = {id(result) for _, result in runner.random}
    found = [
        result.stored[result.work > short.limit, column]
        for _, result in runner.fresh if id(result) not in drawn
    ]  # fmt: skip
    return np.concatenate([np.zeros(0, dtype=np.uint32), *found])


def _grid_bytes(
    runner: BlockRuns, sampled: Sequence[Result], place: int, blocks: int, short: Short,
    errors: int = ERRORS,
) -> float:  # fmt: skip
    """Return what the whole grid writes of an allocation, by blocks that were drawn.

    What other blocks wrote that ran, as neighbours of each other, is known, and not estimated: what
    was drawn stands for the rest. Standard errors are added, so that an honest kernel whose blocks
    differ is not taken for one that leaves work out. Where none of those drawn writes to it and
    others do, all that ran tell.
    """
    if place in runner.followed:
        column = runner.followed.index(place)
        long = [result.stored[result.work > short.limit, column] for result in sampled]
        each, weights = np.concatenate(long).astype(np.float64), None
    else:  # Known of each sample alone.
        short = NONE
        weights = np.array([result.work.size for result in sampled], dtype=np.float64)
        each = np.array([
            SECTOR * result.uses[place].block_written_sectors if place in result.uses else 0
            for result in sampled
        ]) / weights  # fmt: skip
    rest, known = blocks - short.count, short.written_bytes.get(place, 0.0)
    if not each.any():
        return known + rest * runner.written_bytes[place] / max(1, len(runner.ran))
    if weights is None:
        near = _not_drawn(runner, short, column)
        rest, known = rest - near.size, known + float(near.sum(dtype=np.float64))
    mean, error = float(np.average(each, weights=weights)), 0.0
    if each.size > 1:
        ran = each.size if weights is None else float(weights.sum())
        variance = float(np.average((each - mean) ** 2, weights=weights)) / (each.size - 1)
        error = math.sqrt(variance * max(0.0, 1 - ran / max(1, rest)))
    few = weights is None and each.size < min(FEW, rest)
    raised = max(errors * error, ERROR_OF_FEW * mean if few and errors else 0.0)
    return known + rest * (mean + raised)

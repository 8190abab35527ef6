"""A launch like an earlier one of the call: it takes what that took, where its blocks bear it out.

Like is the same kernel and shape, the same arguments but for addresses, and these in the same
relation to buffers of the same sizes. A few blocks run still, drawn as all others are: what they
write is judged, and a launch whose blocks do other work than the earlier one's is sampled itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sized
from dataclasses import replace

from ..counters import LaunchCounters
from ..run.block_runs import BlockRuns
from ..run.candidate import KernelLaunch
from ..run.core import Result
from .blocks import block_choice as choose
from .outputs.written import Atomics, note_atomics, written_of

ALIKE = 1.1
"""By what factor blocks may differ from an average one of the earlier launch where its own are
even."""
_COUNTED = (
    "sectors", "lines", "copy_fetched", "local_sectors", "shared_wavefronts", "atomic_turns",
    "constant_words",
)  # fmt: skip
MOST_SLOWER, MORE_SLOW = 2.0, 4.0
"""By what factor, and by how many, a block may take more slow paths: few take one, by values."""


def block_work(samples: Iterable[tuple[Sized, Result]]) -> tuple[float, ...]:
    """Return what an average block asks of memory, as numbers to compare; last its slow paths.

    A launch that executes the same instructions may scatter over memory what an earlier one had
    in a few sectors.
    """
    runs = list(samples)
    uses = [use for _, result in runs for use in result.uses.values()]
    sums = [
        *(sum(float(result.counters[name].sum()) for _, result in runs) for name in _COUNTED),
        float(sum(use.block_read_sectors for use in uses)),
        float(sum(use.block_written_sectors for use in uses)),
        sum(float(result.counters["slow_paths"].sum()) for _, result in runs),
    ]
    blocks = max(1, sum(len(chosen) for chosen, _ in runs))
    return tuple(each / blocks for each in sums)


def repeated(
    asked: KernelLaunch,
    earlier: LaunchCounters,
    instructions: int,
    budget: int,
    generator: random.Random,
    outputs: Mapping[int, int],
    atomics: Atomics,
) -> LaunchCounters | None:
    """Return the counters of a launch like an earlier one; None where its blocks differ.

    Args:
        asked: the launch.
        earlier: the one that it is like, which was sampled.
        instructions: what it may take; one block runs whatever it costs.
        budget, generator, outputs, atomics: as in `sample_launch`.

    Raises LaunchFailed.
    """
    blocks = earlier.blocks
    each = max(1.0, earlier.samples[0].warp_instructions / blocks)
    count = min(max(1, int(instructions / each)), choose.MOST_BLOCKS)
    chosen = (
        list(range(blocks)) if blocks * each <= instructions
        else sorted(choose.fresh(blocks, min(count, blocks), (), generator))
    )  # fmt: skip
    runner = BlockRuns(asked, budget, outputs)
    result = runner.run(chosen, random=True)
    mean, bound = float(result.work.mean()), ALIKE * earlier.longest_block
    *pairs, (slow, slow_now) = zip(
        earlier.block_work, block_work([(chosen, result)]), strict=True
    )
    even = all(before / bound - 1 <= now <= before * bound + 1 for before, now in pairs)
    even = even and slow_now <= MOST_SLOWER * slow + MORE_SLOW
    if runner.looks_at_others() or not even or not each / bound <= mean <= each * bound:
        runner.take_back()
        return None
    written = written_of(runner, blocks, max(1, int(each)), generator, outputs, 0)
    if len(runner.ran) < blocks:
        note_atomics(runner, outputs, atomics)
    return replace(
        earlier,
        like=asked.like,
        samples=[],
        sampled_blocks=len(runner.ran),
        atomic_lines=max(earlier.atomic_lines, runner.atomic_lines()),
        written=written,
        read=runner.read(),
        race_checked_blocks=0,
        joins_blocks=len(runner.ran) < blocks and runner.joins_blocks(),
        simulated=runner.spent,
    )

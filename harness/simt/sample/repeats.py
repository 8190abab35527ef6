"""A launch like an earlier one of the call: it takes what that took, where its blocks bear it out.

Like is the same kernel and shape, the same arguments but for addresses, and these in the same
relation to buffers of the same sizes. A few blocks run still, drawn as all others are: what they
write is judged, and a launch whose blocks do other work than the earlier one's is sampled itself.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from ..counters import LaunchCounters
from ..run.block_runs import BlockRuns
from ..run.candidate import KernelLaunch
from . import block_choice as choose
from .effort import FULL
from .written import Atomics, note_atomics, written_of

ALIKE = 1.1
"""By what factor blocks may differ from an average one of the earlier launch where its own are
even."""


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
    runner = BlockRuns(asked, budget)
    result = runner.run(chosen, random=True)
    mean, bound = float(result.work.mean()), ALIKE * earlier.longest_block
    if runner.looks_at_others() or not each / bound <= mean <= each * bound:
        runner.take_back()
        return None
    written = written_of(runner, blocks, max(1, int(each)), generator, outputs, FULL.part(0.0))
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

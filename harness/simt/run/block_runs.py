"""Runs some blocks of one launch after others, and adds up what all runs touched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from . import core
from .candidate import HARMLESS, KernelLaunch

SAMPLE_INSTRUCTIONS = 1_500_000
"""Warp instructions that one sample, or the group of an SM, should stay under."""
SECTOR = 32
"""Bytes: the unit in which the core notes who touched what."""


class LaunchFailed(Exception):
    """The launch cannot be profiled: what the runs reported, or nothing where it ran too long."""

    def __init__(
        self, kernel: str, reports: list[core.Report], reads: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(kernel)
        self.kernel = kernel
        self.reports = reports
        self.reads = reads
        """Places of the allocations that the failing run read."""

    @property
    def waits(self) -> bool:
        """Blocks waited for what the blocks of the run never did."""
        return any("never changes" in report.detail for report in self.reports)


class BlockRuns:
    """Runs blocks of one launch and collects the footprint over all runs."""

    def __init__(self, asked: KernelLaunch, budget: int) -> None:
        self.asked = asked
        self.budget = budget
        self.uses: list[tuple[int, core.Result]] = []
        self.ran: set[int] = set()
        self.fresh: list[tuple[int, core.Result]] = []
        """The uses by blocks that had not run before."""
        self.written_bytes = [0.0] * len(asked.memory.starts)
        """Sectors written by the blocks that ran, each block counting its own."""
        self.random: list[tuple[int, core.Result]] = []
        """The uses of the random samples: only these are fair estimates."""

    def run(
        self, blocks: Sequence[int], *, trace: bool = False, random: bool = False
    ) -> core.Result:
        """Run blocks by their index in the grid; raises LaunchFailed.

        Args:
            blocks: which.
            trace: keep the order of the accesses.
            random: they were drawn at random, so what they did stands for the grid.
        """
        result = core.run(
            self.asked.launch, self.asked.memory, list(blocks), checks=False, seed=0, trace=trace,
            max_instructions=self.budget,
        )  # fmt: skip
        reports = [report for report in result.reports if report.kind not in HARMLESS]
        if reports or result.timed_out:
            reads = frozenset(i for i, use in enumerate(result.uses) if use.read_range)
            raise LaunchFailed(self.asked.launch.kernel, reports, reads)
        self.uses.append((len(blocks), result))
        if self.ran.isdisjoint(blocks) or not self.fresh:
            self.fresh.append((len(blocks), result))
        if random:
            self.random.append((len(blocks), result))
        new = len(set(blocks) - self.ran) / len(blocks)
        for place, use in enumerate(result.uses):
            self.written_bytes[place] += new * use.block_written_sectors * 32.0
        self.ran.update(blocks)
        return result

    def joins_blocks(self) -> bool:
        """Say whether a block may use what other blocks of the launch have left in memory."""
        uses = [use for _, result in self.uses for use in result.uses]
        written = {use.start for use in uses if use.written_range}
        return any(use.atomic_sectors.size for use in uses) and any(
            use.loaded and use.start in written for use in uses
        )

    def atomics(self, place: int) -> npt.NDArray[np.int64]:
        """Return the sectors of an allocation that atomics touched, from its start."""
        start = (self.asked.memory.starts[place] - self.asked.memory.base) // SECTOR
        found = [result.uses[place].atomic_sectors for _, result in self.uses]
        return np.unique(np.concatenate(found)) - start

    def atomic_lines(self) -> float:
        """Return the distinct lines that atomics of any run touched."""
        found = [use.atomic_sectors for _, result in self.uses for use in result.uses]
        sectors = np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)
        return float(np.unique(sectors >> 2).size)

    def reads(self, place: int) -> bool:
        """Say whether any block read an allocation."""
        return any(result.uses[place].read_range for _, result in self.uses)

    def written_range(self, place: int) -> tuple[int, int] | None:
        """Return the first byte and the end of what any block wrote of an allocation."""
        found = [result.uses[place].written_range for _, result in self.uses]
        ranges = [each for each in found if each]
        if not ranges:
            return None
        return min(first for first, _ in ranges), max(end for _, end in ranges)

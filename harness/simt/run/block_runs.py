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
    """Runs blocks of one launch and collects the footprint over all runs.

    No block leaves anything twice: a run of blocks that ran before is taken back.
    """

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
        self._kept: list[core.Result] = []

    def run(
        self,
        blocks: Sequence[int],
        *,
        trace: bool = False,
        random: bool = False,
        keep: bool = True,
        fair: bool = False,
        seed: int = 0,
        hop_clocks: tuple[int, int] = (0, 0),
    ) -> core.Result:
        """Run blocks by their index in the grid; raises LaunchFailed.

        Args:
            blocks: which.
            trace: keep the order of the accesses.
            random: they were drawn at random, so what they did stands for the grid.
            keep: remember what they overwrite, for `take_back`.
            fair, seed, hop_clocks: as in core.run.
        """
        again = not self.ran.isdisjoint(blocks)
        result = core.run(
            self.asked.launch, self.asked.memory, list(blocks), checks=False, seed=seed,
            trace=trace, max_instructions=self.budget, keep=keep or again, fair=fair,
            hop_clocks=hop_clocks,
        )  # fmt: skip
        reports = [report for report in result.reports if report.kind not in HARMLESS]
        if reports or result.timed_out:
            if keep:
                core.take_back(result)
            raise LaunchFailed(self.asked.launch.kernel, reports, places_read(result))
        self.uses.append((len(blocks), result))
        if random:
            self.random.append((len(blocks), result))
        if again:
            core.take_back(result)
            return result
        if keep:
            self._kept.append(result)
        self.fresh.append((len(blocks), result))
        for place, use in enumerate(result.uses):
            self.written_bytes[place] += use.block_written_sectors * 32.0
        self.ran.update(blocks)
        return result

    def complete(self, blocks: Sequence[int]) -> None:
        """Run the blocks that have not run, for what they leave; raises LaunchFailed."""
        if not blocks:
            return
        self._kept.clear()
        result = core.run(
            self.asked.launch, self.asked.memory, blocks, checks=False,
            max_instructions=self.budget,
        )  # fmt: skip
        reports = [report for report in result.reports if report.kind not in HARMLESS]
        if reports or result.timed_out:
            raise LaunchFailed(self.asked.launch.kernel, reports, places_read(result))
        self.ran.update(blocks)

    def take_back(self) -> None:
        """Make memory what it was before the first run; what was counted stays."""
        while self._kept:
            core.take_back(self._kept.pop())

    def joins_blocks(self) -> bool:
        """Say whether a block may use what other blocks of the launch have left in memory."""
        uses = [use for _, result in self.uses for use in result.uses]
        written = {use.start for use in uses if use.written_range}
        return any(use.atomic_sectors.size for use in uses) and any(
            use.loaded and use.start in written for use in uses
        )

    def looks_at_others(self) -> bool:
        """Say whether a block read, where the launch writes, what it did not write itself."""
        for place in range(len(self.asked.memory.starts)):
            limits = self.written_range(place)
            if limits is None:
                continue
            for _, result in self.uses:
                read = result.uses[place].read_range
                if read is None:
                    continue
                span = max(limits[0], read[0]), min(limits[1], read[1])
                first, end = ((at - self.asked.memory.base) // SECTOR for at in span)
                if result.looked_at_by[first : max(first, end)].any():
                    return True
        return False

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


def places_read(result: core.Result) -> frozenset[int]:
    """Return the places of the allocations that a run read."""
    return frozenset(place for place, use in enumerate(result.uses) if use.read_range)

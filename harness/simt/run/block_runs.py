"""Runs some blocks of one launch after others, and adds up what all runs touched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from . import core
from .candidate import HARMLESS, KernelLaunch

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

    Args:
        asked: the launch.
        budget: warp instructions that one run may execute.
        followed: places of the allocations of which it is known what each block writes.
    """

    def __init__(
        self, asked: KernelLaunch, budget: int, followed: Collection[int] = ()
    ) -> None:
        self.asked = asked
        self.budget = budget
        self.followed = tuple(followed)
        self.uses: list[tuple[int, core.Result]] = []
        self.ran: set[int] = set()
        self.fresh: list[tuple[int, core.Result]] = []
        """The uses by blocks that had not run before."""
        self.work: dict[int, int] = {}
        """Warp instructions of each block that was counted, in its first run."""
        self.written_bytes: dict[int, float] = defaultdict(float)
        """By the blocks that ran, each counting its own; by place. Whole sectors where that was not
        followed."""
        self.random: list[tuple[int, core.Result]] = []
        """The uses of the random samples: only these are fair estimates."""
        self.spent = 0
        """Warp instructions that were run."""
        self.rest: core.Result | None = None
        """What came of the blocks that `complete` ran."""
        self._kept: list[core.Result] = []

    def run(
        self,
        blocks: Sequence[int],
        *,
        trace: bool | Collection[int] = False,
        random: bool = False,
        keep: bool = True,
        fair: bool = False,
        seed: int = 0,
        hop_clocks: tuple[int, int] = (0, 0),
    ) -> core.Result:
        """Run blocks by their index in the grid; raises LaunchFailed.

        Args:
            blocks: which.
            trace: keep the order of the accesses, or of those of these blocks.
            random: they were drawn at random, so what they did stands for the grid.
            keep: remember what they overwrite, for `take_back`.
            fair, seed, hop_clocks: as in core.run.
        """
        again = not self.ran.isdisjoint(blocks)
        result = core.run(
            self.asked.launch, self.asked.memory, list(blocks), checks=False, seed=seed,
            trace=trace, max_instructions=self.budget, keep=keep or again, fair=fair,
            hop_clocks=hop_clocks, followed=self.followed,
        )  # fmt: skip
        self.spent += int(result.work.sum())
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
        self.work.update(zip(blocks, result.work.tolist(), strict=True))
        for place, use in result.uses.items():
            self.written_bytes[place] += (
                float(result.stored[:, self.followed.index(place)].sum(dtype=np.float64))
                if place in self.followed else float(SECTOR * use.block_written_sectors)
            )  # fmt: skip
        self.ran.update(blocks)
        return result

    def alone(self, block: int) -> core.Result:
        """Run one block, of which nothing stays and nothing is counted; raises LaunchFailed."""
        result = self._for_a_look([block])
        if result.timed_out:
            raise LaunchFailed(self.asked.launch.kernel, [], places_read(result))
        return result

    def looked_at(self, blocks: Sequence[int], limit: int = 0) -> core.Result | None:
        """Run blocks, up to a limit of warp instructions each, of which nothing stays or counts.

        None where they run too long. Raises LaunchFailed: one of them fails.
        """
        result = self._for_a_look(blocks, limit)
        if result.timed_out:
            return None
        if reports := [each for each in result.reports if each.kind not in HARMLESS]:
            raise LaunchFailed(self.asked.launch.kernel, reports, places_read(result))
        return result

    def _for_a_look(self, blocks: Sequence[int], limit: int = 0) -> core.Result:
        """Run blocks and take back what they left; what is known of memory stays, too."""
        result = core.run(
            self.asked.launch, replace(self.asked.memory, initialised=None), blocks, checks=False,
            max_instructions=self.budget, keep=True, followed=self.followed, block_limit=limit,
        )  # fmt: skip
        core.take_back(result)
        self.spent += int(result.work.sum())
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
        self.spent += int(result.work.sum())
        reports = [report for report in result.reports if report.kind not in HARMLESS]
        if reports or result.timed_out:
            raise LaunchFailed(self.asked.launch.kernel, reports, places_read(result))
        self.ran.update(blocks)
        self.rest = result

    def take_back(self) -> None:
        """Make memory what it was before the first run; what was counted stays."""
        while self._kept:
            core.take_back(self._kept.pop())

    def joins_blocks(self) -> bool:
        """Say whether a block may use what other blocks of the launch have left in memory."""
        uses = [use for _, result in self.uses for use in result.uses.values()]
        written = {use.start for use in uses if use.written_range}
        return any(use.atomic_sectors.size for use in uses) and any(
            use.loaded and use.start in written for use in uses
        )

    def looks_at_others(self) -> bool:
        """Say whether a block read, where the launch writes, what it did not write itself."""
        for place, limits in self.written_ranges().items():
            for _, result in self.uses:
                use = result.uses.get(place)
                if use is None or use.read_range is None or not use.looked:
                    continue
                span = max(limits[0], use.read_range[0]), min(limits[1], use.read_range[1])
                first, end = ((at - self.asked.memory.base) // SECTOR for at in span)
                if result.looked_at_by[first : max(first, end)].any():
                    return True
        return False

    def first_sector(self, place: int) -> int:
        """Return the first sector of an allocation, from the start of the arena."""
        return int(self.asked.memory.starts[place] - self.asked.memory.base) // SECTOR

    def atomics(self, place: int) -> npt.NDArray[np.int64]:
        """Return the sectors of an allocation that atomics touched, from its start."""
        uses = [result.uses[place] for _, result in self.uses if place in result.uses]
        found = [use.atomic_sectors for use in uses]
        sectors = np.unique(np.concatenate([*found, np.zeros(0, dtype=np.int64)]))
        return sectors - self.first_sector(place)

    def atomic_lines(self) -> float:
        """Return the distinct lines that atomics of any run touched."""
        sectors, _ = self.atomic_turns()
        return float(np.unique(sectors >> 2).size)

    def atomic_turns(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the sectors that atomics touched, once a run, and how often they took a turn."""
        found = [result.atomics() for _, result in self.uses]
        empty = np.zeros(0, dtype=np.int64)
        return (np.concatenate([empty, *(sectors for sectors, _ in found)]),
                np.concatenate([empty, *(turns for _, turns in found)]))  # fmt: skip

    def read(self) -> list[int]:
        """Return the places of the allocations that any block read, ascending."""
        return sorted(frozenset().union(*(places_read(result) for _, result in self.uses)))

    def written_ranges(self) -> dict[int, tuple[int, int]]:
        """Return the first byte and the end of what any block wrote, by place, ascending."""
        found: dict[int, tuple[int, int]] = {}
        for _, result in self.uses:
            for place, use in result.uses.items():
                if use.written_range:
                    first, end = found.get(place, use.written_range)
                    found[place] = min(first, use.written_range[0]), max(end, use.written_range[1])
        return dict(sorted(found.items()))


def places_read(result: core.Result) -> frozenset[int]:
    """Return the places of the allocations that a run read."""
    return frozenset(place for place, use in result.uses.items() if use.read_range)

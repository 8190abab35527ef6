"""Runs as much of a call at full dimensions as a budget allows, for what it leaves, not for counts.

Which blocks run is drawn by a secret seed, in groups, so that blocks whose results later launches
join are there together. Two such runs take the same blocks in another order, on other poison: an
element in which they differ hangs on blocks that did not run, or on the order of those that did.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from ...judge.reports import Finding, TransferReport
from ..counters import Counts, LaunchCounters, ProfileReport
from ..model.transfers import account
from ..run import core
from ..run.arena import Transfer
from ..run.block_runs import BlockRuns, LaunchFailed
from ..run.candidate import Candidate, KernelLaunch, load_candidate
from ..run.orders import mixed_order
from ..run.verify_run import describe_report, note_transfer
from .dependence import UNEVEN, shared_counter
from .effort import Shares
from .full_memory import back_tensors, follow, leave_outputs
from .sampled_runs import is_uneven, runs_all
from .written import Atomics, note_atomics, written_of

MOST_IN_A_ROW, MOST_BEHIND = 32, 16
"""Neighbours that run together where not all blocks do, and those on the last axis of the grid."""


def run_wide(request: dict[str, Any]) -> ProfileReport:
    """Call launch() once and leave the outputs in files, as `profile` does.

    request["wide"] holds `seed`; `again`, whether this is the second of two runs; and `blocks`, how
    many of each launch the budget allows for. What launches count is not in the report, only what
    they touched. Where a launch is more work than what is left, a finding `timed_out` says so.
    """
    wide, left = request["wide"], int(request["max_instructions"])
    outputs = {
        place: spec["nbytes"]
        for place, spec in enumerate(request["tensors"])
        if spec["role"] == "output"
    }
    launches: list[LaunchCounters | TransferReport] = []
    reports: list[Finding] = []
    atomics: Atomics = {}
    loaded: list[Candidate] = []
    again = bool(wide["again"])
    handed_over = 0

    def on_launch(candidate: Candidate, asked: KernelLaunch) -> bool:
        nonlocal left
        if reports:
            return False
        kernel, blocks = asked.launch.kernel, asked.launch.block_count
        index = sum(isinstance(launch, LaunchCounters) for launch in launches)
        program, runner = asked.launch.program, BlockRuns(asked, left)
        try:
            order = list(range(blocks))
            if not program.may_wait:
                planned = [*wide["blocks"], *[1] * (index + 1)][index]
                count = blocks if shared_counter(asked.launch) else planned
                # Launches of one grid take the same blocks: the second mostly reads what the first
                # has written there.
                generator = random.Random(f"{wide['seed']} {asked.launch.grid}")
                order = _chosen(asked.launch.grid, count, generator)[:: -1 if again else 1]
            partly = len(order) < blocks
            result = runner.run(order, random=True, keep=partly, seed=int(again), fair=again)
            if partly and _forget(runner, asked.memory, launches, handed_over):
                runner.take_back()
                runner = BlockRuns(asked, left)
                result = runner.run(order, random=True, keep=False, seed=int(again), fair=again)
        except core.UnsupportedInstruction as error:
            reports.append(Finding("unsupported", str(error), kernel, error.line))
            return False
        except LaunchFailed as error:
            reports.extend(describe_report(report, candidate) for report in error.reports)
            if not reports:
                reports.append(Finding("timed_out", "the whole grid is too much work", kernel))
            return False
        left = max(1, left - int(result.counters["warps"].sum()))
        complete = len(runner.ran) == blocks
        busiest = int(result.work.max())
        # Where blocks share out their work, who does how much says nothing.
        if complete and not shared_counter(asked.launch) and not runs_all(result.work, effort) and (
            is_uneven(candidate.gpu, result.work, busiest, blocks)
        ):
            reports.append(Finding("unsupported", UNEVEN, kernel))
            return False
        if not complete:
            note_atomics(runner, outputs, atomics)
        launches.append(_touched(runner, asked, complete, outputs))
        return True

    def on_transfer(transfer: Transfer) -> None:
        launches.append(account(transfer, loaded[0].arena.allocations))
        if loaded[0].initialised is not None:
            note_transfer(loaded[0], transfer)

    candidate = load_candidate(request, on_launch)
    loaded.append(candidate)
    handed_over = len(candidate.tensors) + (candidate.workspace is not None)
    back_tensors(request, candidate, again=again, complete=wide["complete"])
    if not wide["complete"]:
        follow(candidate)
    candidate.account_transfers(on_transfer, in_place_of_moving=False)
    effort = Shares(candidate.likes()).effort()
    variables = {each.name for each in candidate.module.variables.values()
                 if each.space == "global"}  # fmt: skip
    if again and wide["complete"] and variables & candidate.addresses.keys():
        # What a call on other inputs leaves on the device, the next one finds there.
        back_tensors(request, candidate, again=True, complete=True, other_inputs=True)
        candidate.call()
        # Whatever it answers, and whatever it takes.
        launches.clear()
        reports.clear()
        left = int(request["max_instructions"])
        back_tensors(request, candidate, again=True, complete=True)
    candidate.call()
    if not reports:
        leave_outputs(request, candidate, atomics, again=again)
    return ProfileReport(launches, [], reports)


def _forget(
    runner: BlockRuns,
    memory: core.Memory,
    launches: Sequence[LaunchCounters | TransferReport],
    handed_over: int,
) -> bool:
    """Take what a launch of which blocks are missing writes, and others wrote, for missing.

    What its blocks do write there counts again when they run once more; says whether they must.
    `handed_over` buffers are launch()'s arguments: variables of the device hold something before.
    """
    found = False
    for place, limits in runner.written_ranges().items():
        start, end = memory.starts[place], memory.ends[place]
        earlier = [_written(each, place) for each in launches]
        if place >= handed_over or any(
            start + first < limits[1] and limits[0] < start + last for first, last in earlier
        ):
            memory.mark_uninitialised(start, end - start)
            found = True
    return found


def _written(each: LaunchCounters | TransferReport, place: int) -> tuple[int, int]:
    """Return the first byte and the end of what a launch, copy or fill wrote of an allocation."""
    if isinstance(each, TransferReport):
        last = each.offset + (each.height - 1) * each.pitch + each.width
        return (each.offset, last) if each.place == place else (0, 0)
    written = each.written.get(place)
    return (written.first, written.end) if written else (0, 0)


def _chosen(grid: tuple[int, int, int], count: int, generator: random.Random) -> list[int]:
    """Return so many blocks of a grid: rows of neighbours, with all that lie behind them.

    What later launches join is mostly spread over the last axis, or lies side by side.
    """
    x, y, z = grid
    if count >= x * y * z:
        return mixed_order(grid, generator)
    behind = z if z <= MOST_BEHIND else 1
    wide = min(x, max(1, min(MOST_IN_A_ROW, count // (4 * behind))))
    chosen: dict[int, None] = {}
    while len(chosen) < count:
        first = generator.randrange(-(-x // wide)) * wide
        row = generator.randrange(y)
        deep = 0 if behind > 1 else generator.randrange(z)
        for step in range(behind):
            start = first + x * (row + y * (deep + step))
            chosen.update(dict.fromkeys(range(start, start + min(wide, x - first))))
    return list(chosen)


def _touched(
    runner: BlockRuns, asked: KernelLaunch, complete: bool, outputs: dict[int, int]
) -> LaunchCounters:
    """Return what a launch touched, as a report that counts nothing."""
    launch = asked.launch
    return LaunchCounters(
        kernel=launch.kernel, grid=launch.grid, block=launch.block,
        dynamic_shared_bytes=launch.dynamic_shared_bytes, samples=[Counts()],
        sampled_blocks=len(runner.ran), resident_blocks=1, chain_clocks=0.0, l1_load_sectors=0.0,
        l1_hit_sectors=0.0, l1_missed_lines=1.0, read_footprint=0.0, write_footprint=0.0,
        reread_bytes=0.0,
        atomic_lines=runner.atomic_lines(),
        written=written_of(runner, launch.block_count, 1 << 40, random.Random(0), outputs),
        read=runner.read(),
        simulated=runner.spent,
        joins_blocks=not complete and runner.joins_blocks(),
    )  # fmt: skip

"""Runs as much of a call at full dimensions as a budget allows, for what it leaves, not for counts.

Which blocks run is drawn by a secret seed, in groups, so that blocks whose results later launches
join are there together. Two such runs take the same blocks in another order, on other poison: an
element in which they differ hangs on blocks that did not run, or on the order of those that did.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...judge.reports import Finding, TransferReport
from ..counters import Counts, LaunchCounters, ProfileReport
from ..model.transfers import account
from ..run import core
from ..run.arena import Transfer
from ..run.block_runs import BlockRuns, LaunchFailed
from ..run.candidate import Candidate, KernelLaunch, load_candidate
from ..run.verify_run import describe_report, note_transfer
from .blocks import block_choice as choose
from .blocks.dependence import UNEVEN, shared_counter
from .blocks.effort import Shares
from .blocks.sampled_runs import is_uneven, runs_all
from .outputs.full_memory import back_tensors, follow, leave_outputs, leave_sectors
from .outputs.written import Atomics, joined_by, note_atomics, note_open, written_of

CLOSER = 12
"""One of so many of a run's instructions may be spent on blocks that end at once."""
LEAST_SHARED = 1 / 16
"""Of the sectors that a block's atomics touch: where one beside it touches no more of them, their
tiles have an edge in common."""


def run_wide(request: dict[str, Any]) -> ProfileReport:
    """Call launch() once and leave the outputs in files, as `profile` does.

    request["wide"] holds `seed`; `again`, whether this is the second of two runs; and `blocks`, how
    many of each launch the budget allows for. What launches count is not in the report, only what
    they touched. Where a launch is more work than what is left, a finding `timed_out` says so.
    """
    wide, left = request["wide"], int(request["max_instructions"])
    closer = left // CLOSER
    outputs = {
        place: spec["nbytes"]
        for place, spec in enumerate(request["tensors"])
        if spec["role"] == "output"
    }
    launches: list[LaunchCounters | TransferReport] = []
    reports: list[Finding] = []
    atomics: Atomics = {}
    left_open: Atomics = {}
    loaded: list[Candidate] = []
    followed = list(outputs)
    again = bool(wide["again"])
    handed_over = 0

    def on_launch(candidate: Candidate, asked: KernelLaunch) -> bool:
        nonlocal left, closer
        if reports:
            return False
        kernel, blocks = asked.launch.kernel, asked.launch.block_count
        index = sum(isinstance(launch, LaunchCounters) for launch in launches)
        program, runner = asked.launch.program, BlockRuns(asked, left, followed)
        try:
            chosen = choose.Together(list(range(blocks)))
            if not program.may_wait:
                planned = [*wide["blocks"], *[1] * (index + 1)][index]
                count = blocks if shared_counter(asked.launch) else planned
                # Launches of one grid take the same blocks: the second mostly reads what the first
                # has written there.
                generator = random.Random(f"{wide['seed']} {asked.launch.grid}")
                joining = _joining(runner, outputs) if count < blocks else None
                chosen = choose.together(asked.launch.grid, count, joining, generator)
            partly = len(chosen.near) < blocks
            if not again:
                note_open(runner, chosen.beside, outputs, left_open)
            results = _run(runner, chosen, again=again, keep=partly)
            if partly and _forget(runner, asked.memory, launches, handed_over):
                runner.take_back()
                runner = BlockRuns(asked, left, followed)
                results = _run(runner, chosen, again=again, keep=False)
            complete = len(runner.ran) == blocks
            spent, budget = runner.spent, 0 if again or complete else closer
            touched = _touched(runner, asked, complete, outputs, budget)
            closer -= runner.spent - spent
        except core.UnsupportedInstruction as error:
            reports.append(Finding("unsupported", str(error), kernel, error.line))
            return False
        except LaunchFailed as error:
            reports.extend(describe_report(report, candidate) for report in error.reports)
            if not reports:
                reports.append(Finding("timed_out", "the whole grid is too much work", kernel))
            return False
        left = max(1, left - spent)
        work = np.concatenate([result.work for result in results])
        busiest = int(work.max())
        # Where blocks share out their work, who does how much says nothing.
        if complete and not shared_counter(asked.launch) and not runs_all(work, effort) and (
            is_uneven(candidate.gpu, work, busiest, blocks)
        ):
            reports.append(Finding("unsupported", UNEVEN, kernel))
            return False
        if not complete:
            note_atomics(runner, outputs, atomics)
        launches.append(touched)
        return True

    def on_transfer(transfer: Transfer) -> None:
        launches.append(account(transfer, loaded[0].arena.allocations))
        if loaded[0].initialised is not None:
            note_transfer(loaded[0], transfer)

    candidate = load_candidate(request, on_launch)
    loaded.append(candidate)
    handed_over = len(candidate.tensors) + (candidate.workspace is not None)
    followed += range(len(candidate.tensors), handed_over)
    back_tensors(request, candidate, again=again, complete=wide["complete"])
    if not wide["complete"]:
        follow(candidate)
    candidate.account_transfers(on_transfer, in_place_of_moving=False)
    effort = Shares(candidate.likes()).effort()
    variables = {each.name for each in candidate.module.variables.values()
                 if each.space == "global"}  # fmt: skip
    if again and variables & candidate.addresses.keys():
        # What a call on other inputs leaves on the device, the next one finds there.
        complete = wide["complete"]
        back_tensors(request, candidate, again=True, complete=complete, other_inputs=True)
        candidate.call()
        # Whatever it answers, and whatever it takes.
        for found in (launches, reports, atomics):
            found.clear()
        left = int(request["max_instructions"])
        back_tensors(request, candidate, again=True, complete=complete)
        if not complete:
            follow(candidate)
    candidate.call()
    if not reports:
        leave_outputs(request, candidate, atomics, again=again)
        leave_sectors(request, left_open, ".open")
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


def _run(
    runner: BlockRuns, chosen: choose.Together, *, again: bool, keep: bool
) -> list[core.Result]:
    """Run neighbours, and what was drawn by itself; for a second run all in another order.

    Where nothing was, the neighbours have to stand for the grid.
    """
    near, apart = chosen.near, chosen.alone
    parts = [(near, not apart), *([(apart, True)] if apart else [])]
    return [
        runner.run(
            part[:: -1 if again else 1], random=drawn, keep=keep, seed=int(again), fair=again
        )
        for part, drawn in parts[:: -1 if again else 1]
    ]


def _joining(runner: BlockRuns, outputs: Mapping[int, int]) -> choose.Joining | None:
    """Return along which axis of the grid blocks join what is an output's, None for none.

    It is that along which one in the middle shares most with those next to it. Raises LaunchFailed.
    """
    grid = runner.asked.launch.grid
    if not runner.asked.launch.program.global_atomics:
        return None
    middle = [extent // 2 for extent in grid]

    def shared(axis: int, away: int) -> int:
        beside = [
            [place + step * (each == axis) for each, place in enumerate(middle)]
            for step in (-away, away) if 0 <= middle[axis] + step < grid[axis]
        ]  # fmt: skip
        found = (joined_by(runner, choose.index_of(grid, at), outputs) for at in beside)
        return max((_in_common(own, each) for each in found), default=0)

    own = joined_by(runner, choose.index_of(grid, middle), outputs)
    axes = (2, 1, 0) if own else ()
    most, axis = max(((shared(axis, 1), axis) for axis in axes if grid[axis] > 1), default=(0, 0))
    if most <= LEAST_SHARED * _in_common(own, own):
        return None
    away, furthest = 1, max(middle[axis], grid[axis] - 1 - middle[axis])
    while away < furthest and shared(axis, min(2 * away, furthest)):
        away = min(2 * away, furthest)
    return choose.Joining(axis, grid[axis] - 1 if away == furthest else 2 * away - 1)


def _in_common(
    one: Mapping[int, npt.NDArray[np.int64]], other: Mapping[int, npt.NDArray[np.int64]]
) -> int:
    """Return how many sectors two blocks have touched."""
    return sum(np.intersect1d(one[place], other[place]).size for place in one if place in other)


def _touched(
    runner: BlockRuns, asked: KernelLaunch, complete: bool, outputs: dict[int, int], budget: int
) -> LaunchCounters:
    """Return what a launch touched, as a report that counts nothing.

    Up to a budget of instructions it is looked at which blocks leave out what is theirs.
    """
    launch, cost = asked.launch, int(np.mean(list(runner.work.values())))
    sizes = np.subtract(asked.memory.ends, asked.memory.starts).tolist()
    return LaunchCounters(
        kernel=launch.kernel, grid=launch.grid, block=launch.block,
        dynamic_shared_bytes=launch.dynamic_shared_bytes, samples=[Counts()],
        sampled_blocks=len(runner.ran), resident_blocks=1, chain_clocks=0.0, l1_load_sectors=0.0,
        l1_hit_sectors=0.0, l1_missed_lines=1.0, read_footprint=0.0, write_footprint=0.0,
        reread_bytes=0.0,
        atomic_lines=runner.atomic_lines(),
        written={
            # How far neighbours reach says nothing of where the others are.
            place: replace(each, span=float(sizes[place]))
            for place, each in written_of(
                runner, launch.block_count, cost, random.Random(0), outputs, budget, thorough=True
            ).items()
        },
        read=runner.read(),
        read_bytes={} if _sees_others(launch) else {
            place: max(result.uses[place].read_bytes for _, result in runner.uses
                       if place in result.uses)
            for place in runner.followed if place in runner.read()
        },
        simulated=runner.spent,
        joins_blocks=not complete and runner.joins_blocks(),
    )  # fmt: skip


def _sees_others(launch: core.Launch) -> bool:
    """Say whether blocks may see what others write meanwhile, so that it is no fault to read it."""
    program = launch.program
    return (
        program.polls or program.may_wait or launch.grid_workspace > 0
        or bool(shared_counter(launch))
    )

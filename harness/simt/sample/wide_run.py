"""Runs as much of a call at full dimensions as a budget allows, for what it leaves, not for counts.

Which blocks run is drawn by a secret seed, in groups, so that blocks whose results later launches
join are there together. Two such runs take the same blocks in another order, on other poison: an
element in which they differ hangs on blocks that did not run, or on the order of those that did.
"""

from __future__ import annotations

import random
from typing import Any

from ...judge.reports import Finding, TransferReport
from ..counters import Counts, LaunchCounters, ProfileReport
from ..decode.decoder import may_wait
from ..model.transfers import account
from ..run import core
from ..run.block_runs import BlockRuns, LaunchFailed
from ..run.candidate import Candidate, KernelLaunch, load_candidate
from ..run.runtime import Transfer
from ..run.verify_run import describe_report
from .dependence import shared_counter
from .full_memory import back_tensors, leave_outputs
from .written import Atomics, note_atomics, written_of

LEAST_IN_A_ROW, MOST_IN_A_ROW = 4, 32
"""Neighbours that run together where not all blocks do."""


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

    def on_launch(candidate: Candidate, asked: KernelLaunch) -> bool:
        nonlocal left
        if reports:
            return False
        kernel, blocks = asked.launch.kernel, asked.launch.block_count
        index = sum(isinstance(launch, LaunchCounters) for launch in launches)
        program, runner = asked.launch.program, BlockRuns(asked, left)
        try:
            order = list(range(blocks))
            if not may_wait(program):
                planned = [*wide["blocks"], *[1] * (index + 1)][index]
                count = blocks if shared_counter(asked.launch) else planned
                generator = random.Random(f"{wide['seed']} {index}")
                order = _chosen(asked.launch.grid, count, generator)[:: -1 if again else 1]
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
        if not complete:
            note_atomics(runner, outputs, atomics)
        launches.append(_touched(runner, asked, complete, outputs))
        return True

    def on_transfer(transfer: Transfer) -> None:
        launches.append(account(transfer, loaded[0].runtime.allocations))

    candidate = load_candidate(request, on_launch)
    loaded.append(candidate)
    back_tensors(request, candidate, again=again)
    candidate.runtime.account_transfers(on_transfer, in_place_of_moving=False)
    faults = candidate.call()
    if not faults and not reports:
        leave_outputs(request, candidate, atomics, again=again)
    return ProfileReport(launches, faults, reports)


def _chosen(grid: tuple[int, int, int], count: int, generator: random.Random) -> list[int]:
    """Return so many blocks of a grid: runs of neighbours along each of its axes."""
    x, y, z = grid
    blocks = x * y * z
    if count >= blocks:
        return generator.sample(range(blocks), blocks)
    axes = [(step, width) for step, width in ((1, x), (x, y), (x * y, z)) if width > 1]
    most = min(MOST_IN_A_ROW, max(LEAST_IN_A_ROW, count // 8))
    chosen: dict[int, None] = {}
    while len(chosen) < count:
        step, width = generator.choice(axes)
        start = generator.randrange(blocks)
        first = start - start // step % width * step
        place = generator.randrange(max(1, width - most + 1))
        row = range(first + step * place, first + step * min(width, place + most), step)
        chosen.update(dict.fromkeys(row))
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
        l1_hit_sectors=0.0, read_footprint=0.0, write_footprint=0.0, reread_bytes=0.0,
        atomic_lines=runner.atomic_lines(),
        written=written_of(runner, launch.block_count, 1 << 40, random.Random(0), outputs),
        read=[place for place in range(len(asked.memory.starts)) if runner.reads(place)],
        joins_blocks=not complete and runner.joins_blocks(),
    )  # fmt: skip

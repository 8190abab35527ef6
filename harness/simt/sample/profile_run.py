"""Runs a candidate at full dimensions, in the child: each launch on a sample of its blocks."""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...judge.reports import Finding, TransferReport
from ...occupancy import occupancy
from ..counters import LaunchCounters, ProfileReport
from ..model.transfers import account
from ..ptx.parser import PtxError
from ..run import core
from ..run.arena import Transfer
from ..run.block_runs import LaunchFailed
from ..run.candidate import Candidate, KernelLaunch, load_candidate
from ..run.verify_run import describe_report
from ..sass.listing import MachineCode, read_listing, with_statements
from .blocks.dependence import UNEVEN, TooUneven, Unaffordable
from .blocks.effort import Overspent, Shares
from .outputs.full_memory import back_tensors, leave_outputs
from .outputs.written import Atomics
from .repeats import repeated
from .sampling import sample_launch

CONFIRMED = 16
"""Times the work that looks for races, where the draw of blocks is a confirmation's."""
_LOCAL_NAME = re.compile(rb"_[0-9a-f]{8}_\d+_\w+?_cu_(?:[0-9a-f]{8})?")
"""What nvcc puts into the names of what is local to a file: hashes of its place."""


def profile(request: dict[str, Any]) -> ProfileReport:
    """Call launch() once and return what each launch, copy and fill did.

    Outputs and workspace hold what they hold in a verification run, and the inputs do not repeat
    where the request names a folder with full-size ones: a candidate cannot tell the runs apart.
    What the sampled blocks wrote of each output is left in files (`leave_outputs`).
    """
    launches: list[LaunchCounters | TransferReport] = []
    reports: list[Finding] = []
    resources = {kernel["kernel"]: kernel for kernel in request["kernels"]}
    listing = request.get("machine_listing")
    machine = read_listing(Path(listing).read_text()) if listing else {}
    budget = int(request["max_instructions"])
    generator = random.Random(f"{_identity(Path(request['ptx']))} {request['draw']}")
    confirmed = CONFIRMED if request["draw"] else 1
    outputs = {
        place: spec["nbytes"]
        for place, spec in enumerate(request["tensors"])
        if spec["role"] == "output"
    }
    loaded: list[Candidate] = []
    incomplete: set[int] = set()
    """Places of the allocations that launches wrote of which only some blocks ran."""
    atomics: Atomics = {}
    sampled: dict[int, LaunchCounters] = {}
    """What may stand for launches like it, by the place of the first of these."""
    places = itertools.count()

    @functools.cache
    def code_of(kernel: str) -> MachineCode | None:
        code, (_, places) = machine.get(kernel), loaded[0].programs.part(kernel)
        return with_statements(code, places) if code else None

    def on_transfer(transfer: Transfer) -> None:
        launches.append(account(transfer, loaded[0].arena.allocations))

    def on_launch(candidate: Candidate, asked: KernelLaunch) -> bool:
        if reports:
            return False
        place = next(places)
        kernel = resources.get(asked.launch.kernel, {})
        threads = int(np.prod(asked.launch.block))
        shared = int(kernel.get("static_shared_bytes", 0)) + asked.launch.dynamic_shared_bytes
        held = occupancy(candidate.gpu.limits, threads, int(kernel.get("registers", 32)), shared)
        try:
            counters = None
            if (earlier := sampled.get(asked.like)) is not None:
                counters = repeated(
                    asked, earlier, shares.repeat, budget, generator, outputs, atomics
                )
            if counters is None:
                effort = shares.effort()
                counters = sample_launch(
                    candidate.gpu, asked, held, shared, budget,
                    code_of(asked.launch.kernel), generator, outputs, atomics, incomplete,
                    replace(effort, races=confirmed * effort.races),
                )  # fmt: skip
            shares.take(counters.simulated, first=place == asked.like)
        except core.UnsupportedInstruction as error:
            reports.append(Finding("unsupported", str(error), asked.launch.kernel, error.line))
            return False
        except Overspent as error:
            reports.append(Finding("unsupported", str(error), asked.launch.kernel))
            return False
        except TooUneven:
            reports.append(Finding("unsupported", UNEVEN, asked.launch.kernel))
            return False
        except Unaffordable as error:
            reports.append(Finding("unsupported", str(error), asked.launch.kernel))
            return False
        except LaunchFailed as error:
            if why := _not_judged(error, asked, incomplete):
                reports.append(Finding("unsupported", why, asked.launch.kernel))
                return False
            reports.extend(describe_report(report, candidate) for report in error.reports)
            if not reports:
                message = f"a few blocks need more than {budget} warp instructions"
                reports.append(Finding("timed_out", message, asked.launch.kernel))
            return False
        launches.append(counters)
        if counters.repeatable and place == asked.like:
            sampled[place] = counters
        if not counters.complete:
            incomplete.update(counters.written)
        elif incomplete.intersection(counters.read):
            incomplete.update(counters.written)
        return True

    try:
        candidate = load_candidate(request, on_launch)
    except PtxError as error:
        return ProfileReport([], [], [Finding("unsupported", str(error), line=error.line)])
    loaded.append(candidate)
    shares = Shares(candidate.likes())
    back_tensors(request, candidate)
    candidate.account_transfers(on_transfer)
    candidate.call()
    if not reports:
        leave_outputs(request, candidate, atomics)
    return ProfileReport(launches, [], reports)


def _not_judged(error: LaunchFailed, asked: KernelLaunch, incomplete: set[int]) -> str:
    """Return why a failure among sampled blocks need not be the candidate's fault, or ""."""
    told = error.reports[0].detail if error.reports else "it runs too long"
    if error.waits or (asked.launch.grid_workspace and not error.reports):
        return (
            "blocks wait for each other, and all blocks together are too much to be simulated at "
            "full dimensions: its time needs a real GPU"
        )
    if asked.launch.program.global_atomics and all(
        report.kind == "timed_out" for report in error.reports
    ):
        return (
            "its blocks share out their work by atomics, and all of it is too much to be simulated "
            "at full dimensions: its time needs a real GPU"
        )
    if error.reads & incomplete:
        return (
            f"{told}: but it goes by what an earlier launch writes, of which only some blocks ran: "
            "at full dimensions this needs a real GPU"
        )
    return ""


def _identity(ptx: Path) -> str:
    """Return what names this code: not the folder that it happened to be compiled in.

    nvcc names that folder in `.file`, hashes it into the names of what is local to the file, and
    spells those names in the debugging strings at the end.
    """
    text = ptx.read_bytes().partition(b"\t.section\t.debug_str")[0]
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(b".file")]
    return hashlib.sha256(_LOCAL_NAME.sub(b"", b"\n".join(lines))).hexdigest()

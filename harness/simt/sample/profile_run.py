"""Runs a candidate at full dimensions, in the child: each launch on a sample of its blocks."""

from __future__ import annotations

import hashlib
import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np

from ...judge.poison import POISON, PROFILED_WORKSPACE
from ...judge.reports import Finding, TransferReport
from ..counters import LaunchCounters, ProfileReport
from ..model.transfers import account
from ..occupancy import occupancy
from ..ptx.parser import PtxError
from ..run import core
from ..run.arena import Allocation, Transfer
from ..run.block_runs import LaunchFailed
from ..run.candidate import HARMLESS, Candidate, KernelLaunch, load_candidate
from ..run.verify_run import describe_report
from ..sass.listing import read_listing
from .sampling import TooUneven, sample_launch

TILE_BYTES = 4 << 20
MOST_LAUNCHES = 64
"""Launches sampled in one call: more would take minutes, so such a candidate is refused."""
MOST_TRANSFERS = 1024
"""Copies and fills in one call."""
PAGE = 4096
_LOCAL_NAME = re.compile(rb"_[0-9a-f]{8}_\d+_\w+?_cu_(?:[0-9a-f]{8})?")
"""What nvcc puts into the names of what is local to a file: hashes of its place."""
LARGEST_DUMP = 8 << 30
"""Outputs larger than this are not handed to the parent. Only pages that were written are."""


def profile(request: dict[str, Any]) -> ProfileReport:
    """Call launch() once and return what each launch, copy and fill did.

    Outputs and workspace hold what they hold in a verification run, and the inputs do not repeat
    where the request names a folder with full-size ones: a candidate cannot tell the runs apart.
    What the sampled blocks wrote of each output is left in OUTPUTS/<name>.pages and <name>.data,
    and the numbers of the 32-byte sectors that atomics touched, if any, in <name>.atomics.
    Where the request says `whole`, all blocks of each launch run and nothing is counted.
    """
    if request.get("whole"):
        return _run_whole(request)
    launches: list[LaunchCounters | TransferReport] = []
    reports: list[Finding] = []
    resources = {kernel["kernel"]: kernel for kernel in request["kernels"]}
    listing = request.get("machine_listing")
    machine = read_listing(Path(listing).read_text()) if listing else {}
    budget = int(request["max_instructions"])
    generator = random.Random(f"{_identity(Path(request['ptx']))} {request['sample']}")
    outputs = {
        place: spec["nbytes"]
        for place, spec in enumerate(request["tensors"])
        if spec["role"] == "output"
    }
    loaded: list[Candidate] = []
    incomplete: set[int] = set()
    """Places of the allocations that launches wrote of which only some blocks ran."""
    atomics: dict[int, list[np.ndarray[Any, np.dtype[np.int64]]]] = {}

    def on_transfer(transfer: Transfer) -> None:
        if sum(isinstance(launch, TransferReport) for launch in launches) < MOST_TRANSFERS:
            launches.append(account(transfer, loaded[0].runtime.allocations))
        elif not reports:
            message = f"more than {MOST_TRANSFERS} copies and fills in one call"
            reports.append(Finding("timed_out", message))

    def on_launch(candidate: Candidate, asked: KernelLaunch) -> bool:
        if reports:
            return False
        if sum(isinstance(launch, LaunchCounters) for launch in launches) >= MOST_LAUNCHES:
            message = f"more than {MOST_LAUNCHES} launches in one call: its time needs a real GPU"
            reports.append(Finding("unsupported", message, asked.launch.kernel))
            return False
        kernel = resources.get(asked.launch.kernel, {})
        threads = int(np.prod(asked.launch.block))
        shared = int(kernel.get("static_shared_bytes", 0)) + asked.launch.dynamic_shared_bytes
        held = occupancy(candidate.gpu.limits, threads, int(kernel.get("registers", 32)), shared)
        try:
            counters = sample_launch(
                candidate.gpu, asked, held, shared, budget,
                machine.get(asked.launch.kernel), generator, outputs, atomics,
            )  # fmt: skip
        except core.UnsupportedInstruction as error:
            reports.append(Finding("unsupported", str(error), asked.launch.kernel, error.line))
            return False
        except TooUneven:
            message = (
                "its blocks differ so much in their work that a few of them do not tell its time"
            )
            reports.append(Finding("unsupported", message, asked.launch.kernel))
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
        if counters.sampled_blocks < asked.launch.block_count:
            incomplete.update(counters.written)
        return True

    try:
        candidate = load_candidate(request, on_launch)
    except PtxError as error:
        return ProfileReport([], [], [Finding("unsupported", str(error), line=error.line)])
    loaded.append(candidate)
    _back_tensors(request, candidate)
    candidate.account_transfers(on_transfer)
    candidate.call()
    if not reports:
        _dump_outputs(request, candidate)
        for place, found in atomics.items():
            name = f"{request['tensors'][place]['name']}.atomics"
            sectors = np.unique(np.concatenate(found)).astype(np.int64)
            sectors.tofile(Path(request["outputs_directory"], name))
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


def _run_whole(request: dict[str, Any]) -> ProfileReport:
    """Call launch() once with every block of every launch, and leave the outputs in files.

    Returns a report without launches; `faults` and `reports` are empty where it ended.
    """
    reports: list[Finding] = []
    spent = 0

    def on_launch(candidate: Candidate, asked: KernelLaunch) -> bool:
        nonlocal spent
        left = int(request["max_instructions"]) - spent
        if left <= 0 and not reports:
            reports.append(
                Finding("timed_out", "the whole grid is too much work", asked.launch.kernel)
            )
        if reports:
            return False
        try:
            result = core.run(
                asked.launch, asked.memory, None, checks=False, seed=0, trace=False,
                max_instructions=left,
            )  # fmt: skip
        except core.UnsupportedInstruction as error:
            reports.append(Finding("unsupported", str(error), asked.launch.kernel, error.line))
            return False
        spent += int(result.counters["warps"].sum())
        reports.extend(
            describe_report(report, candidate)
            for report in result.reports
            if report.kind not in HARMLESS
        )
        if result.timed_out and not reports:
            reports.append(
                Finding("timed_out", "the whole grid is too much work", asked.launch.kernel)
            )
        return not reports

    candidate = load_candidate(request, on_launch)
    _back_tensors(request, candidate)
    candidate.call()
    if not reports:
        _dump_outputs(request, candidate)
    return ProfileReport([], [], reports)


def _back_tensors(request: dict[str, Any], candidate: Candidate) -> None:
    """Back every tensor and the workspace, copied on write: no memory is filled."""
    poison = np.full(TILE_BYTES, POISON, dtype=np.uint8)
    case = Path(request["cases_directory"], request["cases"][0]["directory"])
    for tensor, allocation in candidate.tensors.items():
        if not tensor.nbytes:
            continue
        if tensor.role == "output":
            _repeat(candidate, allocation, poison)
        elif request["inputs_directory"] is not None:
            path = Path(request["inputs_directory"], f"{tensor.name}.bin")
            if path.stat().st_size != tensor.nbytes:
                raise ValueError(f"{path} has another size than {tensor.name}")
            with path.open("rb") as file:
                length = -(-tensor.nbytes // PAGE) * PAGE
                candidate.runtime.back_with_tile(allocation, file.fileno(), length)
        else:
            values = np.fromfile(case / f"{tensor.name}.bin", dtype=np.uint8)
            if values.size >= tensor.nbytes:
                candidate.runtime.view(allocation)[:] = values[: tensor.nbytes]
            else:
                _repeat(candidate, allocation, values)
    if candidate.workspace is not None:
        tile = np.full(TILE_BYTES, PROFILED_WORKSPACE, dtype=np.uint8)
        _repeat(candidate, candidate.workspace, tile)


def _repeat(candidate: Candidate, allocation: Allocation, values: np.ndarray[Any, Any]) -> None:
    """Let a buffer repeat some bytes."""
    pages = -(-allocation.size // PAGE) * PAGE
    tile = np.resize(values, min(TILE_BYTES, pages))
    descriptor = os.memfd_create(allocation.name)
    try:
        os.write(descriptor, tile.tobytes())
        candidate.runtime.back_with_tile(allocation, descriptor, tile.size)
    finally:
        os.close(descriptor)


def _dump_outputs(request: dict[str, Any], candidate: Candidate) -> None:
    """Leave the pages of the outputs that hold anything but poison, and their numbers, in files."""
    for tensor, allocation in candidate.tensors.items():
        if tensor.role != "output" or not 0 < tensor.nbytes <= LARGEST_DUMP:
            continue
        view = candidate.runtime.view(allocation)
        target = Path(request["outputs_directory"], tensor.name)
        found = []
        with target.with_suffix(".data").open("wb") as file:
            for start in range(0, tensor.nbytes, TILE_BYTES):
                part = view[start : start + TILE_BYTES]
                whole = part[: part.size // PAGE * PAGE].reshape(-1, PAGE)
                written = np.flatnonzero((whole.view(np.uint64) != 2**64 - 1).any(axis=1))
                whole[written].tofile(file)
                found.append(written + start // PAGE)
                rest = part[whole.size :]
                if rest.size and (rest != POISON).any():
                    rest.tofile(file)
                    found.append(np.array([(start + whole.size) // PAGE]))
        np.concatenate(found).astype(np.int64).tofile(target.with_suffix(".pages"))

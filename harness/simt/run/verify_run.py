"""Runs a candidate on every case with the checks on, and leaves its outputs in files."""

from __future__ import annotations

import dataclasses
import os
import random
from pathlib import Path
from typing import Any

import numpy as np

from ...judge.poison import OTHER_POISON, POISON
from ...judge.reports import CaseReport, Finding, VerifyReport
from ...judge.run_verdict import AFTER_ANOTHER, AGAIN, LATER
from ...records.tensors import DTYPE_BYTES
from ..decode.places import Buffer, place
from ..ptx.parser import PtxError
from . import core
from .arena import Transfer
from .candidate import (
    HARMLESS,
    Candidate,
    KernelLaunch,
    Tensor,
    load_candidate,
    memory_of,
)
from .later_calls import (
    BESIDE,
    PLAIN_CALLS,
    PLAIN_INSTRUCTIONS,
    Words,
    is_as_kept,
    kept_words,
    named_numbers,
    put_back,
    set_before,
    set_forward,
)
from .orders import mixed_order

CHECKED_CASES = 2
"""Cases that run with all checks on whatever they cost, unless the request says how many."""
CHEAP_INSTRUCTIONS = 300_000
"""Warp instructions a case up to which later cases are checked as well."""
MOST_REPORTS = 8
CHANGED = 0.2
"""Of three quarters of an input that is to look like an earlier one, the share of other values."""


class _Run:
    """What one call of launch() met."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.checks = True
        self.seed = 0
        self.budget = int(request["max_instructions"])
        self.failed = False
        self.reports: list[Finding] = []
        self.notes: list[Finding] = []
        self.launches = 0
        self.instructions = 0

    def on_launch(self, candidate: Candidate, launch: KernelLaunch) -> bool:
        """Simulate the whole grid; a launch after a failed one does not run, as on a GPU."""
        if self.failed:
            return False
        self.launches += 1
        try:
            result = core.run(
                launch.launch, launch.memory, self._blocks(launch.launch), checks=self.checks,
                seed=self.seed, trace=False, fair=bool(self.seed),
                max_instructions=max(1, self.budget - self.instructions),
            )  # fmt: skip
        except core.UnsupportedInstruction as error:
            self.reports.append(
                Finding("unsupported", str(error), launch.launch.kernel, error.line)
            )
            self.failed = True
            return False
        self.instructions += int(result.counters["warps"].sum())
        for report in result.reports:
            told = describe_report(report, candidate)
            # A compiler may load a local variable early and not use it: only where the answer is
            # wrong, or differs when other poison lies there, is that a fault.
            local = report.kind == "uninitialized_read" and report.space == "local"
            (self.notes if local or report.kind in HARMLESS else self.reports).append(told)
        if result.timed_out and not any(report.kind == "timed_out" for report in result.reports):
            self.reports.append(
                Finding("timed_out", "the instruction budget is spent", launch.launch.kernel)
            )
        fatal = {"timed_out", "trap", "assert", "barrier_divergence"}
        self.failed = any(report.kind in fatal for report in self.reports)
        return not self.failed

    def _blocks(self, launch: core.Launch) -> list[int] | None:
        """Return the order of the blocks: ascending, and in the second run none in particular.

        Blocks that may wait for others begin in ascending order, as they would on a GPU. In the
        first run one ends before the next begins, where it can; in the second they take turns.
        """
        if not self.seed or launch.program.may_wait:
            return None
        return mixed_order(launch.grid, random.Random(self.seed))


def verify(request: dict[str, Any]) -> VerifyReport:
    """Run every case; stop at the first that shows a fault."""
    state = _Run(request)
    try:
        candidate = load_candidate(request, state.on_launch)
    except PtxError as error:
        return _stopped(Finding("unsupported", str(error), line=error.line))
    candidate.account_transfers(
        lambda transfer: note_transfer(candidate, transfer), in_place_of_moving=False
    )
    cases = []
    checked = request.get("checked_cases", CHECKED_CASES)
    for index, case in enumerate(request["cases"]):
        state.checks = index < checked or 0 < state.instructions < CHEAP_INSTRUCTIONS
        again = index == 0 and request.get("again", True)
        result = _run_case(request, state, candidate, case, again=again)
        cases.append(result)
        if result.shows_fault:
            break
    return VerifyReport(cases)


def _run_case(
    request: dict[str, Any], state: _Run, candidate: Candidate, case: dict[str, Any], *, again: bool
) -> CaseReport:
    source = Path(request["cases_directory"], case["directory"])
    originals = {}
    for tensor in candidate.tensors:
        if tensor.role != "output":
            data = np.fromfile(source / f"{tensor.name}.bin", dtype=np.uint8)
            if data.size != tensor.nbytes:
                raise ValueError(f"case {case['name']}: {tensor.name} has {data.size} bytes")
            originals[tensor] = data
    result = CaseReport(name=case["name"], checked=state.checks)
    reports: list[Finding] = []
    checks, cheap = state.checks, True
    kept = [kept_words(candidate)] if again else []
    for repeat in range(2 if again else 1):
        # The other order of warps is for the results; only what may be a race is looked at again.
        state.checks = checks and (repeat == 0 or bool(reports) or cheap)
        state.seed, state.reports, state.notes, state.failed = repeat, [], [], False
        state.launches = state.instructions = 0
        _fill(candidate, originals, OTHER_POISON if repeat else (POISON, POISON))
        candidate.call()
        reports += state.reports
        cheap = state.instructions < CHEAP_INSTRUCTIONS
        result.reports = reports[:MOST_REPORTS]
        result.notes = state.notes[:MOST_REPORTS]
        result.guards = candidate.arena.broken_guards()[:MOST_REPORTS]
        result.modified = _modified(candidate, originals)
        result.launches, result.instructions = state.launches, state.instructions
        if again:
            kept.append(kept_words(candidate))
        if result.guards or result.modified:
            break
        if reports:
            # In one order of warps a missing barrier reads memory that is not written yet, in
            # another it shows as the race it is: the second run tells.
            if any(report.kind != "uninitialized_read" for report in reports):
                break
            continue
        _leave_outputs(request, candidate, case, AGAIN if repeat else ".")
    if len(kept) == 3 and not result.shows_fault and not is_as_kept(candidate, kept[0]):
        result.reports = _call_later(request, state, candidate, case, originals, kept, result)
    return result


def _call_later(
    request: dict[str, Any],
    state: _Run,
    candidate: Candidate,
    case: dict[str, Any],
    originals: dict[Tensor, np.ndarray[Any, Any]],
    kept: list[list[Words]],
    result: CaseReport,
) -> list[Finding]:
    """Call it again and again, then as if it had been called often, twice; return the faults.

    `kept` is what the device's variables held before and after the two calls before this one. They
    then hold what they do after a third. Guards and inputs are noted in `result`.
    """
    found: list[Finding] = []
    outputs = [at for tensor, at in candidate.tensors.items() if tensor.role == "output"]
    launches, first = state.launches, state.instructions

    def call() -> list[bytes]:
        state.checks, state.seed, state.failed = False, 0, False
        state.reports, state.instructions = [], 0
        _fill(candidate, originals, (POISON, POISON))
        candidate.call()
        found.extend(
            dataclasses.replace(report, message=f"called often before: {report.message}")
            for report in state.reports
        )
        result.guards = result.guards or candidate.arena.broken_guards()[:MOST_REPORTS]
        result.modified = result.modified or _modified(candidate, originals)
        return [candidate.arena.view(output).tobytes() for output in outputs]

    usual = call()
    third = kept_words(candidate)
    put_back(candidate, kept[0])
    _fill(candidate, _begun_alike(request, originals), (POISON, POISON))
    candidate.call()  # Whatever it answers: the next call finds what it has left.
    call()
    _leave_outputs(request, candidate, case, AFTER_ANOTHER)
    put_back(candidate, third)
    forward = set_forward([*kept[1:], third])
    if forward is not None:
        left = PLAIN_INSTRUCTIONS // max(1, first)
        numbers = named_numbers(candidate)[: left // 2 // BESIDE]
        starts = [set_before([*kept[1:], third], each) for each in numbers]
        turns = [(start, BESIDE) for start in starts if start is not None]
        # Plain calls come last: what is then there is what they left.
        turns.append((third, min(PLAIN_CALLS, left - BESIDE * len(turns))))
        for start, count in turns:
            put_back(candidate, start)
            if any(found or result.guards or result.modified or call() != usual
                   for _ in range(count)):
                break
        _leave_outputs(request, candidate, case, LATER[0])
        put_back(candidate, forward)
        for folder in LATER[1:]:
            if not found:
                call()
                _leave_outputs(request, candidate, case, folder)
        put_back(candidate, third)
    state.launches, state.instructions = launches, first
    return found[:MOST_REPORTS]


def _begun_alike(
    request: dict[str, Any], originals: dict[Tensor, np.ndarray[Any, Any]]
) -> dict[Tensor, np.ndarray[Any, Any]]:
    """Return inputs that begin as these do, and of whose rest some elements are another case's.

    What a kernel knows earlier inputs by, few elements of the whole or of each row, is mostly the
    same.
    """
    chance = np.random.default_rng()
    other = Path(request["cases_directory"], request["cases"][-1]["directory"])
    found = dict(originals)
    for tensor, data in originals.items():
        if tensor.role == "input" and "float" in tensor.dtype:
            item = DTYPE_BYTES[tensor.dtype]
            own = data.reshape(-1, item)
            rest = np.fromfile(other / f"{tensor.name}.bin", dtype=np.uint8).reshape(-1, item)
            another = chance.random(len(own)) < CHANGED
            another[: len(own) // 4] = False
            found[tensor] = np.where(another[:, None], rest, own).ravel()
    return found


def _leave_outputs(
    request: dict[str, Any], candidate: Candidate, case: dict[str, Any], folder: str
) -> None:
    target = Path(request["outputs_directory"], folder, case["directory"])
    os.makedirs(target, exist_ok=True)
    for tensor, allocation in candidate.tensors.items():
        if tensor.role == "output":
            candidate.arena.view(allocation).tofile(target / f"{tensor.name}.bin")


def _fill(
    candidate: Candidate,
    originals: dict[Tensor, np.ndarray[Any, Any]],
    poison: tuple[int, int],
) -> None:
    """Copy the inputs in and paint everything else: outputs and workspace with their poison."""
    arena = candidate.arena
    arena.paint_guards()
    for tensor, allocation in candidate.tensors.items():
        arena.view(allocation)[:] = originals.get(tensor, poison[0])
    if candidate.workspace:
        arena.view(candidate.workspace)[:] = poison[1]
    memory = memory_of(arena)
    candidate.initialised = memory.initialised = np.zeros(memory.size // 4 + 1, np.uint8)
    unwritten = [candidate.workspace, *(candidate.tensors[tensor] for tensor in candidate.tensors
                                        if tensor not in originals)]  # fmt: skip
    for allocation in arena.allocations:
        if allocation not in unwritten:
            memory.mark_initialised(allocation.address, allocation.size)


def note_transfer(candidate: Candidate, transfer: Transfer) -> None:
    """Note what a copy or fill initialises: a copy of unwritten bytes leaves them unwritten."""
    memory = memory_of(candidate.arena, candidate.initialised)
    for row in range(transfer.height):
        memory.copy_initialised(
            transfer.source + row * transfer.source_pitch if transfer.source else None,
            transfer.target + row * transfer.target_pitch,
            transfer.width,
        )


def _modified(candidate: Candidate, originals: dict[Tensor, np.ndarray[Any, Any]]) -> list[str]:
    return [
        tensor.name
        for tensor, data in originals.items()
        if not np.array_equal(candidate.arena.view(candidate.tensors[tensor]), data)
    ]


def describe_report(report: core.Report, candidate: Candidate) -> Finding:
    """Return a report of the core as a finding, its address told as a place in a buffer."""
    message, kind = report.detail, str(report.kind)
    if report.space:
        # Only here are the names of global buffers known.
        where = report.buffer or place(
            report.address,
            [Buffer(x.name, x.address, x.size) for x in candidate.arena.allocations],
        )
        outside = kind == "out_of_bounds"
        message = f"{message.split(',')[0]} {where}" if outside else f"{message} at {where}".strip()
    if report.block >= 0 and report.thread >= 0:
        message += f", block {report.block} thread {report.thread}"
    if report.called_from:
        message += f", called from line {report.called_from}"
    message += f"; PTX line {report.ptx_line}: {report.instruction}"
    return Finding(kind, message, report.kernel, report.line, report.count)


def _stopped(found: Finding) -> VerifyReport:
    """Return the report on a candidate that could not be loaded."""
    return VerifyReport([CaseReport(reports=[found])])

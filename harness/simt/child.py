"""Starts the child process that runs a candidate's kernels, and believes only what it can check."""

from __future__ import annotations

import json
import math
import secrets
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..build.cache import cache_root
from ..errors import UserError
from ..judge.border import Malformed, read_report
from ..judge.reports import TransferReport
from ..process.children import TimedOut, how_it_ended, last_line, python_environment
from ..process.fork_client import Program, run_forked
from ..records.builds import Diagnostic
from ..records.outcomes import Outcome
from ..records.record import Record
from .counters import LaunchCounters, Level, ProfileReport

LARGEST_REPORT = 64 << 20
PATIENCE = 10
"""Times its processor time that a run may take by the wall: a run waits for nothing but its turn
on a busy machine."""
WORKER = Program("harness.simt.worker")
"""Runs one candidate on the simulated GPU."""


Report = TypeVar("Report")


class Limits(Record):
    """Limits of one run of a candidate."""

    seconds: float
    """Of the processor: other work on the machine does not count against a candidate."""
    output_bytes: int
    """Largest file that the child may write."""
    address_space: int
    """Bytes that the child may map: the arena, and the maps the checks keep beside it."""
    max_instructions: int
    """Warp instructions that one call of `launch` may execute on the simulated GPU."""


@dataclass(frozen=True)
class Reply(Generic[Report]):
    """The child's report, or why there is none."""

    report: Report | None = None
    outcome: Outcome | None = None
    """Set where there is no report."""
    reason: str = ""

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The failure as a diagnostic."""
        if self.outcome is None:
            return ()
        return (Diagnostic(kind=str(self.outcome), message=self.reason),)


def run_candidate(
    request: dict[str, Any], scratch: Path, limits: Limits, kind: type[Report]
) -> Reply[Report]:
    """Run the worker on a request and return its report, which is of a kind.

    The request's file, the report and the log lie in `scratch`, which the caller removes.

    Raises:
        UserError: the worker failed before it loaded the candidate.
    """
    token = secrets.token_hex(16)
    report = scratch / "report.json"
    request_file = scratch / "request.json"
    written = json.dumps(
        {
            **request,
            "token": token,
            "report": str(report),
            "max_instructions": limits.max_instructions,
            "limits": {
                "RLIMIT_CPU": math.ceil(limits.seconds),
                "RLIMIT_FSIZE": limits.output_bytes + (64 << 20),
                "RLIMIT_AS": limits.address_space,
                "RLIMIT_CORE": 0,
                "RLIMIT_NOFILE": 128,
            },
        }
    ).encode()
    request_file.write_bytes(written)
    environment = python_environment(scratch)
    environment["KERNELBLASTER_CACHE"] = str(cache_root())
    environment["OMP_NUM_THREADS"] = environment["OPENBLAS_NUM_THREADS"] = "1"
    try:
        status = run_forked(
            WORKER, [str(request_file)], directory=scratch, environment=environment,
            log=scratch / "log", seconds=PATIENCE * limits.seconds,
        )  # fmt: skip
    except TimedOut:
        if _still_holds(request_file, written):
            waited = f"{PATIENCE * limits.seconds:g} s"
            raise _machine_fault(f"no start within {waited}") from None
        return _out_of_time(limits)
    if status == -signal.SIGXCPU:
        return _out_of_time(limits)
    found = _read(report, token)
    if found is not None:
        if "machine_error" in found:
            raise _machine_fault(str(found["machine_error"])[:300])
        try:
            return Reply(read_report(kind, found))
        except Malformed as malformed:
            failed = malformed.failure()
            return Reply(outcome=failed.outcome, reason=failed.reason)
    if _still_holds(request_file, written):
        raise _machine_fault(_why(status, scratch / "log"))
    outcome = Outcome.FORBIDDEN if status == -signal.SIGSYS else Outcome.CRASHED
    return Reply(outcome=outcome, reason=_why(status, scratch / "log"))


def _out_of_time(limits: Limits) -> Reply[Any]:
    return Reply(
        outcome=Outcome.TIMED_OUT,
        reason=f"did not finish within {limits.seconds:g} s of the processor's time: a loop that "
        "does not end, or far too much work",
    )


def isolation_facts(missing: Sequence[str]) -> dict[str, str]:
    """Return, as a fact, what could not be applied to the child; no fact where all was."""
    return {"isolation_missing": "; ".join(missing)} if missing else {}


def require_sense(report: ProfileReport) -> None:
    """Refuse what an honest child never reports, though its fields fit. Raises Malformed."""
    kernels: list[LaunchCounters] = []
    for launch in report.launches:
        if isinstance(launch, TransferReport):
            if launch.value > 255:
                raise Malformed("a fill with more than a byte")
            continue
        if launch.like is not None:
            alike = kernels[launch.like] if launch.like < len(kernels) else launch
            if alike.like is not None or launch.samples or _shape(alike) != _shape(launch):
                raise Malformed(f"a launch of {launch.kernel} that is like no other")
        elif not (
            launch.samples
            and all(len(line) == 3 for each in launch.samples for line in each.lines.values())
            and min(*launch.grid, *launch.block) > 0
            and min(launch.sampled_blocks, launch.resident_blocks) > 0
            and all(map(_tells_something, (launch.work_levels, launch.clock_levels)))
        ):
            raise Malformed(f"a launch of nothing by {launch.kernel}")
        kernels.append(launch)


def _tells_something(levels: Sequence[Level]) -> bool:
    """Whether levels are none, or rising numbers of blocks that do something."""
    counts = [0.0, *(count for count, _ in levels)]
    rising = all(less < more for less, more in pairwise(counts))
    return rising and all(value > 0 for _, value in levels[:1])


def _shape(launch: LaunchCounters) -> tuple[object, ...]:
    return launch.kernel, launch.grid, launch.block, launch.dynamic_shared_bytes


def _still_holds(path: Path, data: bytes) -> bool:
    """Whether the request's file is as it was written: nobody without the token can make it so."""
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False


def _machine_fault(reason: str) -> UserError:
    return UserError(
        f"the simulated GPU does not start on this machine: {reason}; does a limit (ulimit -v, a "
        "container's memory) stand in the way?"
    )


def _read(path: Path, token: str) -> dict[str, Any] | None:
    """Return the report, less the token that makes it ours; None without one. Of bounded size."""
    try:
        if path.is_symlink() or path.stat().st_size > LARGEST_REPORT:
            return None
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.pop("token", None) != token:
        return None
    return value


def _why(status: int, log: Path) -> str:
    # A killed process has nothing to add: what its log ends with came before.
    return how_it_ended(status, last_line(log) if status > 0 else "")

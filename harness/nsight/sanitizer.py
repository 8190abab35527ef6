"""Compute Sanitizer: finds what a GPU does not show, and says it as our outcomes do."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..process.children import TimedOut, read_log, run_process
from ..records.builds import Diagnostic
from ..records.evaluations import StageResult
from ..records.outcomes import Outcome

RACES = "racecheck"
TOOLS = ("memcheck", RACES)
MOST_REPORTS = 5
MOST_PRINTED = 100
_FOUND_SOMETHING = 86
"""Exit status that the sanitizer is told to end with where it reports an error."""
_INSTALLATIONS = ("/usr/local/cuda/bin", "/opt/cuda/bin", "/usr/lib/cuda/bin")

_REPORT = re.compile(
    # Every report begins like this; what does too, and is none, is listed.
    r"^========= (?!COMPUTE-SANITIZER|Target application|Warning: |[A-Z]+ SUMMARY)"
    r"(?P<what>[A-Z].*)$"
)
_AFTERMATH = "Program hit "
"""What the runtime said of a kernel that failed: a report of its own where no other says why."""
_PLACE = re.compile(r"in (?:\S*/)?(?P<file>[^/\s:]+\.cu):(?P<line>\d+)")
_ACCESS = re.compile(r" access at .* in (?:\S*/)?([^/\s:]+):(\d+)")
_MOST_HAZARDS = "Maximum number of hazards reached"
_TARGET_FAILED = "Target application returned an error"
"""Said of a program that did not come to its end; the sanitizer's own status hides it."""
Lines = frozenset[tuple[str, int]]


def find_sanitizer() -> Path | None:
    """Return compute-sanitizer: the one on PATH, else in CUDA's usual places, else None."""
    found = shutil.which("compute-sanitizer")
    if found:
        return Path(found)
    places = (Path(folder) / "compute-sanitizer" for folder in _INSTALLATIONS)
    return next((place for place in places if place.is_file()), None)


def sanitize_program(
    target: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    seconds: float,
    where: str = "",
    sanitizer: Path | None = None,
    tools: Sequence[str] = TOOLS,
    strong: Lines = frozenset(),
) -> StageResult:
    """Run a program under each tool; blocks, see `off_loop`.

    Where a tool cannot be run or does not finish, the fact `sanitizer_missing` says which and why;
    the fact `sanitizer` names those that found nothing.

    Args:
        target: program and arguments; it should end with status 0.
        directory: an existing folder of its own, for the logs.
        seconds: limit of all tools together: a later one has what the earlier left.
        where: what the program works on, in words, for the facts: "at full dimensions".
        strong: see `failure_of`.
        sanitizer: compute-sanitizer; searched for when not given.
    """
    sanitizer = sanitizer or find_sanitizer()
    if sanitizer is None:
        missing = "compute-sanitizer is not on PATH: install it with the CUDA toolkit"
        return StageResult(outcome=Outcome.PASSED, facts={"sanitizer_missing": missing})
    clean, missing_tools = [], []
    end = time.monotonic() + seconds
    for tool in tools:
        left = end - time.monotonic()
        if left <= 0:
            missing_tools.append(f"{tool}: nothing was left of {seconds:g} s")
            continue
        log = directory / f"{tool}.log"
        command = [
            str(sanitizer), "--tool", tool, "--error-exitcode", str(_FOUND_SOMETHING),
            "--print-limit", str(MOST_PRINTED), "--show-backtrace", "no", *target,
        ]  # fmt: skip
        try:
            status = run_process(
                command, directory=directory, environment=environment, log=log, seconds=left
            )
        except TimedOut:
            missing_tools.append(f"{tool}: did not finish within {left:.3g} s")
            continue
        except OSError as error:
            missing_tools.append(f"{tool}: cannot be started: {error.strerror or error}")
            continue
        text = read_log(log)
        reports = reports_in(text)
        failed = failure_of(tool, reports, strong)
        if failed is None and status == _FOUND_SOMETHING and not reports:
            failed = _failure(Diagnostic(kind="crashed", message=_last_words(text, status)))
        if failed is not None:
            return failed
        if reports and (_MOST_HAZARDS in text or len(reports) >= MOST_PRINTED):
            missing_tools.append(f"{tool}: it reported no other accesses than such as do not race")
        elif status == 0 or (reports and _TARGET_FAILED not in text):
            clean.append(tool)
        else:
            missing_tools.append(f"{tool}: {_last_words(text, status)}")
    facts: dict[str, float | int | str] = {}
    if clean:
        facts["sanitizer"] = f"{', '.join(clean)} {where}".strip()
    if missing_tools:
        facts["sanitizer_missing"] = f"{where}: {'; '.join(missing_tools)}".removeprefix(": ")
    return StageResult(outcome=Outcome.PASSED, facts=facts)


def failure_of(
    tool: str, reports: Sequence[Sequence[str]], strong: Lines = frozenset()
) -> StageResult | None:
    """Return the failure that a tool's reports describe, None where they describe none.

    Race warnings are left out: the tool itself does not call them errors. So is what the runtime
    said of a launch that a report explains, and races between accesses that are all `strong`: in
    lines, each a file without its folder and a number, where none is that can race.
    """
    found: list[Diagnostic] = []
    for block in reports:
        words = "; ".join(block)
        if (found and words.startswith(_AFTERMATH)) or _is_among(block, strong):
            continue
        place = _PLACE.search(words)
        found.append(
            Diagnostic(
                kind=_kind(words),
                message=f"compute-sanitizer {tool}: {words}"[:600],
                line=int(place.group("line")) if place else None,
            )
        )
    return _failure(*found[:MOST_REPORTS]) if found else None


def reports_in(text: str) -> list[list[str]]:
    """Return the lines of each report in a tool's output."""
    found = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if match := _REPORT.match(line):
            block = [match.group("what").strip()]
            for following in lines[number + 1 :]:
                if not following.startswith("=========     "):
                    break
                block.append(following.removeprefix("=========").strip())
            found.append(block)
    return found


def _is_among(block: Sequence[str], strong: Lines) -> bool:
    """Say whether a report is of a race of which each access is strong."""
    accesses = [_ACCESS.search(line) for line in block if " access at " in line]
    return _kind(block[0]) == "race" and bool(accesses) and all(
        access is not None and (access[1], int(access[2])) in strong for access in accesses
    )


def _failure(*found: Diagnostic) -> StageResult:
    return StageResult(
        outcome=_OUTCOMES[found[0].kind], reason=found[0].message, diagnostics=found
    )


_OUTCOMES = {
    "race": Outcome.RACE,
    "misaligned": Outcome.MISALIGNED,
    "out_of_bounds": Outcome.OUT_OF_BOUNDS,
    "uninitialized_read": Outcome.UNINITIALIZED_READ,
    "crashed": Outcome.CRASHED,
}


def _kind(words: str) -> str:
    if words.startswith("Error: Race"):
        return "race"
    if "misaligned" in words.lower():
        return "misaligned"
    if words.startswith("Uninitialized"):
        return "uninitialized_read"
    if words.startswith("Invalid __"):
        return "out_of_bounds"
    return "crashed"


def _last_words(text: str, status: int) -> str:
    said = [line.lstrip("= ") for line in text.splitlines() if line.strip("= ")]
    return f"ended with status {status}" + (f": {said[-1][:200]}" if said else "")

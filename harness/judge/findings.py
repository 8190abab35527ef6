"""Turns what the child reports of a verification run into an outcome with its one-line reason."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from ..records.builds import Build, Diagnostic
from ..records.evaluations import StageResult
from ..records.outcomes import Outcome
from ..vetting.symbols import bare_name, check_library, readable
from .reports import CaseReport, Finding

PRECISION_LOSS = 100.0
"""A candidate this many times as far from the double-precision answer as PyTorch is loses
precision: reported, not refused. TF32 in a float32 task gives thousands, long sums in one float32
hundreds, another order of summation tens."""

_OUTCOMES: dict[str, Outcome] = {
    "unsupported": Outcome.UNSUPPORTED,
    "forbidden": Outcome.FORBIDDEN,
    "invalid_launch": Outcome.CRASHED,
    "out_of_bounds": Outcome.OUT_OF_BOUNDS,
    "misaligned": Outcome.MISALIGNED,
    "trap": Outcome.CRASHED,
    "assert": Outcome.CRASHED,
    "barrier_divergence": Outcome.CRASHED,
    "race": Outcome.RACE,
    "timed_out": Outcome.TIMED_OUT,
    "uninitialized_read": Outcome.UNINITIALIZED_READ,
    "modified_input": Outcome.WRONG_ANSWER,
}
"""By kind of finding, the gravest first: the first kind met names the outcome."""


def judge(case: CaseReport, source: str = "") -> StageResult | None:
    """Return the failure that one case shows, or None where the child saw no fault.

    In `source` the lines of faulty host calls are looked for.
    """
    found = [
        *(located(Diagnostic(kind=kind, message=message), source) for kind, message in case.faults),
        *map(of_report, case.reports),
        *(
            Diagnostic(kind="out_of_bounds", message=f"wrote {text} (guard band damaged)")
            for text in case.guards
        ),
        *(
            Diagnostic(kind="modified_input", message=f"modified its input {name}")
            for name in case.modified
        ),
    ]
    if not found:
        return None
    order = list(_OUTCOMES)
    found.sort(key=lambda item: order.index(item.kind) if item.kind in order else len(order))
    first = found[0]
    return StageResult(
        outcome=_OUTCOMES.get(first.kind, Outcome.CRASHED),
        reason=sentence(first, case.name),
        diagnostics=tuple(found),
    )


def no_launch(built: Build) -> StageResult:
    """Return what is said of a candidate that passed without starting a kernel."""
    reason = "launch() started no kernel: there is nothing to time"
    return StageResult(
        outcome=Outcome.PROFILER_UNAVAILABLE, reason=reason, build=built,
        diagnostics=(Diagnostic(kind="no_launch", message=reason),),
    )  # fmt: skip


def lost_precision(ratio: float) -> Diagnostic | None:
    """Return what is told of a pass whose error is `ratio` times PyTorch's own; None of most."""
    if ratio <= PRECISION_LOSS:
        return None
    return Diagnostic(
        kind="precision_loss",
        message=f"within tolerance, but its error against double precision is {ratio:.0f} times "
        "PyTorch's own: computed in less than the task's precision, or in long sums that lose it",
    )


def sentence(diagnostic: Diagnostic, case: str = "") -> str:
    """Return a diagnostic as one line: kind, place, what happened, how often."""
    place = []
    if diagnostic.kernel:
        place.append(f"kernel {readable(diagnostic.kernel)}")
    if diagnostic.line:
        place.append(f"line {diagnostic.line}")
    kind = diagnostic.kind.replace("_", " ")
    message = diagnostic.message if diagnostic.message != kind else ""
    text = ": ".join(part for part in (kind, " ".join(place), message) if part)
    if diagnostic.count > 1:
        text += f" ({diagnostic.count} times)"
    text = re.sub(r"\b_Z\w+", lambda name: readable(name[0]), " ".join(text.split()))
    return text + (f" [case {case}]" if case else "")


def explained(wrong: StageResult, notes: tuple[Diagnostic, ...]) -> StageResult:
    """Return a wrong answer with what was noted on the way; a value never written is its cause."""
    told = {"diagnostics": (*wrong.diagnostics, *notes)}
    for note in notes:
        if note.kind == "uninitialized_read":
            return wrong.model_copy(
                update={"outcome": Outcome.UNINITIALIZED_READ,
                        "reason": f"{sentence(note)}; {wrong.reason}",
                        "diagnostics": (note, *wrong.diagnostics, *notes)}
            )  # fmt: skip
    return wrong.model_copy(update=told)


def of_report(report: Finding) -> Diagnostic:
    """Return one of the child's reports as a diagnostic."""
    return Diagnostic(**dataclasses.asdict(report))


def located(diagnostic: Diagnostic, source: str) -> Diagnostic:
    """Return a diagnostic of a host call with its line, where the source has only one such call.

    Host code carries no line numbers, so the kernel launched or the function called is looked for.
    """
    launched = re.search(r"(?<!\w)(\w+)<<<", diagnostic.message)
    called = re.search(r"\bcuda[A-Z]\w+", diagnostic.message)
    name = ""
    if launched:
        name = bare_name(readable(launched[1]))
        wanted, before = rf"\b{re.escape(name)}\b", "<<<"
    elif called:
        wanted, before = rf"\b{called[0]}\b", "("
    else:
        return diagnostic
    lines = [
        number
        for number, line in enumerate(source.split("\n"), 1)
        if re.search(wanted, line.split("//")[0].rpartition(before)[0])
    ]
    known = {"line": lines[0]} if len(lines) == 1 and diagnostic.line is None else {}
    return diagnostic.model_copy(update={**known, **({"kernel": name} if name else {})})


def judge_build(built: Build, source: str = "") -> StageResult | None:
    """Return why a build may not run, or None. `source` as in `judge`."""
    if not built.succeeded:
        first = built.diagnostics[0]
        forbidden = first.kind.startswith("forbidden")
        return StageResult(
            outcome=Outcome.FORBIDDEN if forbidden else Outcome.COMPILE_ERROR,
            reason=sentence(first), diagnostics=built.diagnostics, build=built,
        )  # fmt: skip
    found = (*built.diagnostics, *check_library(Path(built.directory, "candidate.so")))
    if not found:
        return None
    found = tuple(located(diagnostic, source) for diagnostic in found)
    missing = found[0].kind == "missing_launch"
    return StageResult(
        outcome=Outcome.COMPILE_ERROR if missing else Outcome.FORBIDDEN,
        reason=sentence(found[0]), diagnostics=tuple(found), build=built,
    )  # fmt: skip

"""The verdict on a verification run whose outputs lie in files: faults, answers, repetition."""

from __future__ import annotations

from pathlib import Path

from ..records import Build, Diagnostic, Outcome, StageResult, Task
from ..task.cases import read_cases, read_weak_to
from .findings import explained, judge, of_report
from .reports import VerifyReport
from .verification import check_outputs, compare


def judge_run(
    task: Task, cases: Path, outputs: Path, report: VerifyReport, built: Build, source: str
) -> StageResult:
    """Return the verdict on a run that left a report."""
    for case in report.cases:
        failed = judge(case, source)
        if failed:
            return failed.model_copy(update={"build": built})
    result = check_outputs(task, cases, outputs, report.cases)
    if result.outcome is Outcome.PASSED:
        result = _judge_repeat(task, cases, outputs) or _with_weakness(result, cases)
    if result.outcome in (Outcome.WRONG_ANSWER, Outcome.NONDETERMINISTIC):
        notes = [of_report(note) for case in report.cases for note in case.notes]
        result = explained(result, tuple(dict.fromkeys(notes)))
    return result.model_copy(update={"build": built})


def _with_weakness(passed: StageResult, cases: Path) -> StageResult:
    """Return a pass with what its task cannot tell from right, where there is such a thing."""
    weak_to = read_weak_to(cases)
    facts = passed.facts | ({"task_weak_to": weak_to} if weak_to else {})
    return passed.model_copy(update={"facts": facts})


def _judge_repeat(task: Task, cases: Path, outputs: Path) -> StageResult | None:
    """Return the failure where the second run of a case, in another warp order, differs."""
    for case in read_cases(cases):
        for spec, tolerance in zip(task.verify.of_role("output"), case.tolerances, strict=True):
            again = outputs / "again" / case.directory / f"{spec.name}.bin"
            if not again.is_file():
                continue
            first = (outputs / case.directory / f"{spec.name}.bin").read_bytes()
            second = again.read_bytes()
            mismatch = None if first == second else compare(second, first, spec, tolerance)
            if mismatch is not None:
                reason = (
                    "two runs on the same input, with other poison and in another order of warps "
                    "and blocks, disagree: "
                    f"{mismatch.message} (case {case.name})"
                )
                return StageResult(
                    outcome=Outcome.NONDETERMINISTIC, reason=reason,
                    diagnostics=(Diagnostic(kind="nondeterministic", message=reason),),
                )  # fmt: skip
    return None

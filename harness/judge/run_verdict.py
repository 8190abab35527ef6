"""The verdict on a verification run whose outputs lie in files: faults, answers, repetition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..records.builds import Build, Diagnostic
from ..records.evaluations import StageResult
from ..records.outcomes import Outcome
from ..records.tasks import Task
from ..task.cases import Case, read_degenerate, read_weak_to
from .findings import explained, judge, of_report
from .reports import VerifyReport
from .verification import check_outputs, compare, outputs_of

LATER = ("some calls later", "many calls later", "and one more")
"""Folders of what calls answered that find on the device what others have left there; AGAIN is that
of the second call of a case."""
AGAIN = "again"
AFTER_ANOTHER = "after another"
"""And that of a call that follows one on inputs which begin alike."""


def judge_run(
    task: Task,
    folder: Path,
    cases: Sequence[Case],
    outputs: Path,
    report: VerifyReport,
    built: Build,
    source: str,
) -> StageResult:
    """Return the verdict on a run of some of the cases in a folder that left a report."""
    for case in report.cases:
        failed = judge(case, source)
        if failed:
            return failed.model_copy(update={"build": built})
    result = check_outputs(task, folder, outputs, report.cases, cases)
    if result.outcome is Outcome.PASSED:
        result = _judge_repeat(task, cases, outputs) or with_limits(result, task, folder)
    if result.outcome in (Outcome.WRONG_ANSWER, Outcome.NONDETERMINISTIC):
        notes = [of_report(note) for case in report.cases for note in case.notes]
        result = explained(result, tuple(dict.fromkeys(notes)))
    return result.model_copy(update={"build": built})


def with_constants(passed: StageResult, relied: Sequence[str]) -> StageResult:
    """Return a pass with the constants of the task on whose values the candidate relied."""
    if not relied:
        return passed
    names = ", ".join(relied)
    told = Diagnostic(
        kind="relies_on_constants",
        message=f"it relies on the values of {names}: constants of the task, but where they are "
        "others its answer is wrong",
    )
    return passed.model_copy(
        update={"facts": passed.facts | {"relies_on": names},
                "diagnostics": (*passed.diagnostics, told)}
    )  # fmt: skip


def degenerate_in_words(solved_by: str) -> str:
    """Return why a task is refused that `solved_by` solves."""
    return (
        f"the task cannot tell right from wrong: {solved_by}; --allow-degenerate goes on with it"
    )


def limits_of_task(task: Task, weak_to: str, degenerate: str) -> dict[str, float | int | str]:
    """Return the facts about what the cases of a task do not tell or vary."""
    told = {
        "degenerate": degenerate,
        "task_weak_to": weak_to,
        "not_varied": ", ".join(task.variation.not_varied),
    }
    return {name: words for name, words in told.items() if words}


def with_limits(passed: StageResult, task: Task, folder: Path) -> StageResult:
    """Return a pass with what the cases of a task, listed in a folder, do not tell or vary."""
    facts = passed.facts | limits_of_task(task, read_weak_to(folder), read_degenerate(folder))
    return passed.model_copy(update={"facts": facts})


def _judge_repeat(task: Task, cases: Sequence[Case], outputs: Path) -> StageResult | None:
    """Return the failure where a further call of a case differs from its first."""
    how = {
        AGAIN: "two runs on the same input, with other poison and in another order of warps and "
        "blocks, disagree",
        **dict.fromkeys(
            (AFTER_ANOTHER, *LATER), "a call finds what others have left in variables of the "
            "device, and a later one gives another answer to the same input",
        ),
    }  # fmt: skip
    for case in cases:
        for folder, words in how.items():
            for spec, tolerance in outputs_of(task, case):
                again = outputs / folder / case.directory / f"{spec.name}.bin"
                if tolerance is None or not again.is_file():
                    continue
                first = (outputs / case.directory / f"{spec.name}.bin").read_bytes()
                second = again.read_bytes()
                mismatch = None if first == second else compare(second, first, spec, tolerance)
                if mismatch is not None:
                    reason = f"{words}: {mismatch.message} (case {case.name})"
                    return StageResult(
                        outcome=Outcome.NONDETERMINISTIC, reason=reason,
                        diagnostics=(Diagnostic(kind="nondeterministic", message=reason),),
                    )  # fmt: skip
    return None

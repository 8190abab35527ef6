"""Findings become outcomes: the gravest decides, and each says where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelblaster.harness.judge.findings import (
    explained,
    judge,
    judge_build,
    located,
    lost_precision,
    no_launch,
    sentence,
)
from kernelblaster.harness.judge.reports import CaseReport, Finding
from kernelblaster.harness.records.builds import Build, Diagnostic
from kernelblaster.harness.records.evaluations import StageResult
from kernelblaster.harness.records.outcomes import Outcome

BUILD = Build(key="k", succeeded=True, arch="sm_90", compiler="nvcc")


@pytest.mark.parametrize(
    ("case", "outcome", "reason"),
    [
        (CaseReport(guards=["2 bytes past out0"]), Outcome.OUT_OF_BOUNDS,
         "out of bounds: wrote 2 bytes past out0 (guard band damaged) [case c]"),
        (CaseReport(modified=["x"]), Outcome.WRONG_ANSWER,
         "modified input: modified its input x [case c]"),
        (CaseReport(reports=[Finding("race", "two warps", "k", 7, 3)]), Outcome.RACE,
         "race: kernel k line 7: two warps (3 times) [case c]"),
        (CaseReport(modified=["x"], guards=["over a"], reports=[Finding("race", "r")],
                    faults=[("forbidden", "f")]), Outcome.FORBIDDEN, "forbidden: f [case c]"),
        (CaseReport(faults=[("odd", "o"), ("timed_out", "long")]), Outcome.TIMED_OUT,
         "timed out: long [case c]"),
        (CaseReport(faults=[("odd", "o")]), Outcome.CRASHED, "odd: o [case c]"),
        (CaseReport(reports=[Finding("race", "r")], faults=[("unsupported", "u")]),
         Outcome.UNSUPPORTED, "unsupported: u [case c]"),
    ],
)  # fmt: skip
def test_the_gravest_finding_is_the_outcome(
    case: CaseReport, outcome: Outcome, reason: str
) -> None:
    case.name = "c"
    found = judge(case)
    assert found is not None
    assert (found.outcome, found.reason) == (outcome, reason)
    count = sum(map(len, (case.faults, case.reports, case.guards, case.modified)))
    assert len(found.diagnostics) == count
    assert case.shows_fault


def test_notes_are_no_fault() -> None:
    case = CaseReport(notes=[Finding("uninitialized_read", "n")])
    assert judge(case) is None and not case.shows_fault


@pytest.mark.parametrize(
    ("diagnostic", "text"),
    [
        (Diagnostic(kind="trap", message="trap"), "trap"),
        (Diagnostic(kind="a_b", message="a b"), "a b"),
        (Diagnostic(kind="race", message="m", line=3), "race: line 3: m"),
        (Diagnostic(kind="race", message="m", kernel="_Z3addPf"), "race: kernel add: m"),
        (Diagnostic(kind="race", message="of _Z3addPf\n here", count=2),
         "race: of add here (2 times)"),
    ],
)  # fmt: skip
def test_a_finding_in_one_line(diagnostic: Diagnostic, text: str) -> None:
    assert sentence(diagnostic).replace("add(float*)", "add") == text
    assert sentence(diagnostic, "c").endswith(" [case c]")


@pytest.mark.parametrize(("ratio", "told"), [(99.0, False), (100.0, False), (100.5, True)])
def test_lost_precision_is_told_beyond_a_bound(ratio: float, told: bool) -> None:
    assert (lost_precision(ratio) is not None) is told


SOURCE = """// k<<<1, 2>>>(a);
void launch() {
    kk<<<1, 2>>>(a);
    k<<<1, 2>>>(a); // k<<<
    cudaMemcpyAsync(a);
    cudaMemsetAsync(a);
    cudaMemsetAsync(b);
    twice<<<1, 2>>>(a);
    twice<<<1, 2>>>(a);
}"""


@pytest.mark.parametrize(
    ("message", "line", "kernel"),
    [
        ("_Z1kPf<<<(1,1,1)>>> is odd", 4, "k"),
        ("_Z5twicePf<<<(1,1,1)>>> is odd", None, "twice"),
        ("cudaMemcpyAsync on another stream", 5, None),
        ("cudaMemsetAsync on another stream", None, None),
        ("neither", None, None),
    ],
)
def test_a_host_call_is_found_where_there_is_one(
    message: str, line: int | None, kernel: str | None
) -> None:
    found = located(Diagnostic(kind="forbidden", message=message), SOURCE)
    assert (found.line, found.kernel) == (line, kernel)
    known = located(Diagnostic(kind="forbidden", message=message, line=99), SOURCE)
    assert known.line == 99


def test_a_value_never_written_explains_a_wrong_answer() -> None:
    wrong = StageResult(outcome=Outcome.WRONG_ANSWER, reason="out0 differs")
    other = Diagnostic(kind="race_note", message="o")
    unwritten = Diagnostic(kind="uninitialized_read", message="of shared memory", line=3)
    found = explained(wrong, (other,))
    assert found.outcome is Outcome.WRONG_ANSWER and found.diagnostics == (other,)
    found = explained(wrong, (other, unwritten))
    assert found.outcome is Outcome.UNINITIALIZED_READ
    assert found.reason == "uninitialized read: line 3: of shared memory; out0 differs"
    assert found.diagnostics[0] == unwritten


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [("compile_error", Outcome.COMPILE_ERROR), ("forbidden_symbol", Outcome.FORBIDDEN)],
)
def test_a_failed_build_says_why(kind: str, outcome: Outcome) -> None:
    told = (Diagnostic(kind=kind, message="m", line=2),)
    found = judge_build(BUILD.model_copy(update={"succeeded": False, "diagnostics": told}))
    assert found is not None and found.outcome is outcome
    assert found.reason == f"{kind.replace('_', ' ')}: line 2: m"


@pytest.mark.parametrize(
    ("of_build", "of_library", "outcome"),
    [
        ((), (), None),
        (("forbidden_symbol",), (), Outcome.FORBIDDEN),
        ((), ("missing_launch",), Outcome.COMPILE_ERROR),
        ((), ("forbidden_symbol", "missing_launch"), Outcome.FORBIDDEN),
    ],
)
def test_a_build_may_run_where_nothing_is_found_in_it(
    monkeypatch: pytest.MonkeyPatch, of_build: tuple[str, ...], of_library: tuple[str, ...],
    outcome: Outcome | None,
) -> None:  # fmt: skip
    seen: list[Path] = []

    def check_library(path: Path) -> tuple[Diagnostic, ...]:
        seen.append(path)
        return tuple(Diagnostic(kind=kind, message="m") for kind in of_library)

    monkeypatch.setattr("kernelblaster.harness.judge.findings.check_library", check_library)
    told = tuple(Diagnostic(kind=kind, message="m") for kind in of_build)
    found = judge_build(BUILD.model_copy(update={"diagnostics": told, "directory": "here"}))
    assert (found and found.outcome) == outcome
    assert seen == [Path("here/candidate.so")]


def test_a_pass_without_a_launch_has_no_time() -> None:
    assert no_launch(BUILD).outcome is Outcome.PROFILER_UNAVAILABLE
